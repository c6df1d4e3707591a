// server_sync.h: a step's gradients to the owners of the parameters, and what these have made of
// them back: training by a parameter server, in place of sums over ranks.
//
// A bucket is a table.  Its gradients leave its memory when backward has them; from then on, until
// the next forward has taken them, its new values come to the same place.  Where the net pages they
// leave in a step of its trace, and come in another, to a place that it has for that step: copies
// are on the compute stream, and nothing moves in the background there.  Each rank owns the part
// of each bucket whose optimizer's state it has (UpdatedPart), applies what all send for it, and
// has the latest values of it beside its own worker's, which may be older.
//
// The last ranks may only own: then the others' parts are so much smaller that all send as much.
//
// Where the server is in host memory, so is the optimizer's state: the model has it while no rank
// steps.
//
// In bsp an owner updates by the sum of all ranks' gradients, once a step: the bits of `direct`.
// Otherwise by each rank's as it comes, N updates a step of N ranks: with N times its gradient,
// whose expectation is the whole batch's, and an Nth of the learning rate, hence of the decay.
//
// Where gradients are clipped, or a step may be skipped, owners in bsp wait for a ServerGate.
// Otherwise each rank does it with its own before it sends them: one that it skips it sends
// spoilt (ScaleOrSpoil), and no owner applies.
//
// Used by the thread that owns the compute stream.
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
  // The rate of a step: of another rank's, which may be ahead of this one's.
  using LearningRate = std::function<double(int64_t step)>;

  // All arguments outlive the result.  Preconditions: the model's shape has a server, no
  // lazy tables.  Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<ServerSync>> Create(const Model& model,
                                                            const Optimizer& optimizer,
                                                            LearningRate learning_rate,
                                                            Device& device, Stream& compute,
                                                            ProcessGroup& communication);
  ~ServerSync();

  // Of all that follows: errors of ranks.

  // Once, ahead of the first step, whose number this is: owners begin with the parameters that all
  // ranks have.  Blocks.
  absl::Status Begin(int64_t step);
  bool begun() const { return begun_; }

  // What comes next on the compute stream finds the new values in the bucket's memory; `use`
  // enqueues what takes them.  Once a step: again it does nothing.  Blocks until they are here.
  absl::Status Take(int bucket, const std::function<absl::Status()>& use);
  // The bucket's gradients are on the compute stream.
  absl::Status Push(int bucket);
  // In bsp, gated, on all ranks, after the pushes: as ServerGate::Pass.
  absl::Status PassGate() { return gate_->Pass(first_step_ + server_->clock()); }
  const ServerGate* gate() const { return gate_.get(); }  // null: not in bsp, or not gated
  // Ahead of Begin: of a dynamic loss scale, where a run goes on.
  void SetLossScale(const LossScaleState& state);
  // The step has pushed all buckets.
  absl::Status EndStep();

  // All ranks are after the same step: blocks until every owner has applied all of it, and gives
  // all parameters to all ranks.
  absl::Status Settle();
  // Settled; nothing follows.
  absl::Status Stop();
  // All ranks have found that nothing can follow, some a step later than others.
  absl::Status Abandon() { return server_->Abandon(); }

 private:
  class Update;

  ServerSync(const Model& model, Stream& compute);

  // Enqueues the way of the optimizer's state of this rank's parts between the model's memory and
  // the server's, where that is host memory.
  absl::Status CopySlots(bool to_server);

  const Model& model_;
  Stream& compute_;
  std::unique_ptr<Device> host_;         // where rows lie in host memory; else null
  std::unique_ptr<Stream> host_stream_;  // of it
  // Where rows lie: an UpdateScalars a bucket; then how many were dropped of each chunk, I64.
  Buffer scalars_;
  std::vector<std::unique_ptr<Update>> updates_;  // by bucket
  std::unique_ptr<ParameterServer> server_;       // uses them
  std::unique_ptr<ServerGate> gate_;
  int64_t first_step_ = 0, skipped_ = 0;  // skipped: ahead of it
  std::vector<int> reads_, pushes_;       // by bucket
  std::vector<int64_t> taken_;            // by bucket: in how many steps
  bool begun_ = false;
};

}  // namespace gyre
