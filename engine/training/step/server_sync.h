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
//   bsp         the owners, together (ServerGate)
//   ssp, async  each worker, before it sends; owners drop a skipped gradient (ScaleOrSpoil)
// A step ends when all ranks' gradients are sent.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "distributed/parameter_server/parameter_server.h"
#include "engine/training/model/model.h"
#include "engine/training/optimizers/optimizer.h"
#include "engine/training/step/server_gate.h"

namespace gyre {

class ServerSync {
 public:
  // The learning rate of a step.  Another rank's step may be ahead of this rank's.
  using LearningRate = std::function<double(int64_t step)>;

  // All arguments outlive the result.  Errors: those of allocation.
  // Precondition: the model's shape has a server, and no table is lazy.
  static absl::StatusOr<std::unique_ptr<ServerSync>> Create(const Model& model,
                                                            const Optimizer& optimizer,
                                                            LearningRate learning_rate,
                                                            Device& device, Stream& compute,
                                                            ProcessGroup& communication);
  ~ServerSync();

  // The functions below return the errors of ranks.
  //
  // Called before each step.  The first call lets owners start from the ranks' parameters, and
  // `step` is its step's number.  It blocks.  Later calls do nothing.
  absl::Status Begin(int64_t step);

  // Blocks until the bucket's new values have arrived, then calls `use`, which enqueues their
  // consumer.  Later work on the compute stream finds them in the bucket's memory.  A second call
  // in a step does nothing.
  absl::Status Take(int bucket, const std::function<absl::Status()>& use);
  // Sends the bucket's gradients, which are on the compute stream.
  absl::Status Push(int bucket) { return server_->Update(pushes_[bucket]); }
  // The owners decide together.  In bsp, with a gate.  Then copies of owners_sums() find the sums
  // of squares of all buckets.
  absl::Status PassGate() { return owners_gate_->Pass(first_step_ + server_->clock()); }
  const double* owners_sums() const { return owners_gate_->sums(); }
  // Ends a step, after all its buckets were sent.
  absl::Status Clock() { return server_->Clock(); }
  // Does the whole of a step on a rank that runs no batch.  Returns the first bucket with a
  // gradient that is not finite, if no smaller loss scale helps, or else -1.
  absl::StatusOr<int64_t> Serve(int64_t step);
  // Sets a dynamic loss scale where a run resumes, before Begin.
  void SetLossScale(const LossScaleState& state);

  // The next three do nothing before Begin.
  //
  // Blocks until every owner has applied the step, then gives all parameters to all ranks.
  // Precondition: all ranks have ended the same step.
  absl::Status Settle();
  // Ends the server.  Precondition: settled.
  absl::Status Stop() { return begun_ ? server_->Stop() : absl::OkStatus(); }
  // Ends the server if all ranks found that nothing can follow, some a step later than others.
  absl::Status Abandon() { return begun_ ? server_->Abandon() : absl::OkStatus(); }

 private:
  class Update;

  ServerSync(const Model& model, const Optimizer& optimizer, LearningRate learning_rate,
             Stream& compute);

  // Enqueues copies of this rank's optimizer state between the model and a server in host memory.
  absl::Status CopySlots(bool to_server);

  const Model& model_;
  const Optimizer& optimizer_;
  const LearningRate learning_rate_;
  Stream& compute_;
  int64_t first_step_ = 0, skipped_ = 0;  // skipped: steps before first_step_
  std::unique_ptr<Device> host_;          // null unless the server is in host memory
  std::unique_ptr<Stream> host_stream_;   // of host_
  // In the server's memory.  An UpdateScalars a bucket, then I64 counts of gradients dropped, by
  // chunk.
  Buffer scalars_;
  std::vector<std::unique_ptr<Update>> updates_;  // by bucket; they read the members above
  std::unique_ptr<ServerGate> owners_gate_;       // null: not in bsp, or not gated
  std::unique_ptr<ParameterServer> server_;       // uses updates_
  std::vector<int> reads_, pushes_;               // by bucket
  std::vector<int64_t> taken_;                    // by bucket: number of steps that took it
  bool begun_ = false;
};

}  // namespace gyre
