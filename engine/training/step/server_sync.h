// server_sync.h: trains by a parameter server.  Used by the compute stream's thread.
//
// A bucket is a table.  Its gradients are sent to owners when backward has completed them.  New
// values return to the same memory before the next forward reads them.  With paging both are steps
// of the trace, on the compute stream, and no copy runs in the background.  A rank owns the shard
// that UpdatedShard returns, with the optimizer's state, and applies all ranks' gradients to it.
// The owner has the shard's latest values.  Its own worker's values may be older.  The last ranks
// may only own.  Then workers' shards are smaller, and a server's link carries no more than a
// worker's.  If the server is in host memory, so is the optimizer's state.  The model holds it
// while no rank steps.
//
// When an owner updates:
//   bsp         once a step, by the sum of all ranks' gradients: the bits of `direct`
//   ssp, async  N times a step of N workers, by each worker's gradient as it arrives
// In ssp and async a gradient counts N times, as its expectation is the whole batch's.  The
// learning rate, and hence the decay, is divided by N.
//
// Who clips, or skips a step:
//   bsp         all ranks, by the norms that owners measure (ServerNorms)
//   ssp, async  each worker, before it sends; owners drop a skipped gradient (ScaleOrSpoil)
// A step ends when all ranks' gradients are sent.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "distributed/parameter_server/parameter_server.h"
#include "engine/training/step/bucket_exchange.h"
#include "engine/training/step/bucket_views.h"
#include "engine/training/step/server_norms.h"

namespace gyre {

class ServerSync final : public BucketExchange {
 public:
  // All arguments outlive the result.  Errors: those of allocation.
  // Precondition: the model's shape has a server, and no table is lazy.
  static absl::StatusOr<std::unique_ptr<ServerSync>> Create(
      const Model& model, const Optimizer& optimizer, RateOfStep learning_rate, Device& device,
      Stream& compute, ProcessGroup& communication, TakeIn take_in);
  ~ServerSync() override;

  // The first call lets owners start from the ranks' parameters, and `step` is its step's number.
  // It blocks.  Later calls do nothing.
  absl::Status Start(int64_t step) override;
  absl::Status Begin(int bucket) override { return server_->Update(pushes_[bucket]); }
  // Later work on the compute stream finds the new values in the bucket's memory.  A second call in
  // a step does nothing.
  absl::Status Await(int bucket) override;
  absl::Status AddNorms() override;
  absl::Status UploadNorms() override;
  // With a gate, lets the owners update as it says.
  absl::Status Clock(const UpdateScalars* update, const GradientReport* report) override;
  void SetLossScale(const LossScaleState& state) override {
    skipped_ = state.skipped;
    diverged_ = false;
  }
  void SetGroups(const UpdateGroups& groups) override;
  // These do nothing before Start.
  absl::Status Settle() override;
  absl::Status Stop() override { return begun_ ? server_->Stop() : absl::OkStatus(); }
  absl::Status Abandon() override { return begun_ ? server_->Abandon() : absl::OkStatus(); }

 private:
  class Update;

  ServerSync(const Model& model, const Optimizer& optimizer, RateOfStep learning_rate,
             Stream& compute, ProcessGroup& communication, TakeIn take_in);

  // Rows of a bucket that this rank owns, and their gradients.
  BucketViews ViewsOf(int bucket, const OwnedRows& rows, const Tensor& sent) const;
  absl::Status MeasureParameters();
  // The arrays of this rank's optimizer state: of a server in host memory, and of the model.
  absl::Status EachSlot(
      absl::FunctionRef<absl::Status(const Tensor& servers, const Tensor& models)> copy) const;

  const Model& model_;
  const Optimizer& optimizer_;
  const RateOfStep learning_rate_;
  Stream& compute_;
  ProcessGroup& communication_;
  const TakeIn take_in_;
  int64_t first_step_ = 0, skipped_ = 0;  // skipped: steps before first_step_
  UpdateGroups groups_;                   // in updates of owners
  std::unique_ptr<Device> host_;          // null unless the server is in host memory
  std::unique_ptr<Stream> host_stream_;   // of host_
  // In the server's memory.  An UpdateScalars a bucket, then I64 counts of gradients dropped, by
  // chunk.
  Buffer scalars_;
  Buffer norms_;                                  // likewise: NormsBytes
  std::vector<std::unique_ptr<Update>> updates_;  // by bucket; they read the members above
  std::unique_ptr<ServerNorms> gradient_norms_;   // null: not in bsp, or not gated
  UpdateScalars gate_;                            // gated: the gate's result
  bool diverged_ = false;                         // gated: the last step did
  std::unique_ptr<ParameterServer> server_;       // uses updates_
  std::vector<int> reads_, pushes_;               // by bucket
  std::vector<int64_t> taken_;                    // by bucket: number of steps that took it
  bool begun_ = false;
};

}  // namespace gyre
