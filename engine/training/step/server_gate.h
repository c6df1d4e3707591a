// server_gate.h: the update gate of a parameter server in bsp.  Used by the stream's thread.
// Between a step's sums and their updates, owners measure their ranges (RunShape::MeasuredRanges).
// All ranks exchange the sums of squares and compute one result, with the bits of `direct`.
#pragma once

#include <memory>
#include <vector>

#include "distributed/parameter_server/parameter_server.h"
#include "engine/training/model/model.h"
#include "engine/training/optimizers/optimizer.h"
#include "engine/training/step/update_gate.h"

namespace gyre {

class ServerGate {
 public:
  // The server's rows are on `device`, and `stream` is one of its streams.  All arguments outlive
  // the result.  Precondition: the server is gated, and its tables are the model's buckets.
  // Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<ServerGate>> Create(const Model& model,
                                                            const Optimizer& optimizer,
                                                            Device& device, Stream& stream,
                                                            ProcessGroup& communication,
                                                            ParameterServer& server);

  // Sets the dynamic loss scale that PassGateOnHost updates.
  void SetLossScale(const LossScaleState& state) { loss_scale_ = state; }
  void SetGroups(const UpdateGroups& groups) { groups_ = groups; }

  // Blocks until all ranks know the sums of squares.  Then owners may apply theirs.
  // Precondition: all ranks call it, after all gradients of the step were sent, unless a step has
  // diverged, which is the last.  Errors: those of ranks.
  absl::Status Pass(int64_t step);

  // The results of Pass.  The sums are F64 in pinned host memory, by bucket.
  const double* sums() const { return reinterpret_cast<const double*>(sums_.data()); }
  // Owners use its gradient_scale, skip, decay, correction and first, the only fields set.
  const UpdateScalars& update() const { return update_; }
  // Whether a gradient is not finite and no smaller loss scale will help.
  bool diverged() const;

 private:
  ServerGate(const Model& model, const Optimizer& optimizer, Stream& stream,
             ProcessGroup& communication, ParameterServer& server);
  absl::Status Measure();
  absl::Status AddUp();

  const Model& model_;
  const Optimizer& optimizer_;
  Stream& stream_;
  ProcessGroup& communication_;
  ParameterServer& server_;
  LossScaleState loss_scale_;
  UpdateGroups groups_;
  UpdateGate gate_;
  struct MeasuredBucket {
    size_t first = 0, count = 0;          // of all ranges: the bucket's
    size_t first_own = 0, count_own = 0;  // and those that this rank owns
  };
  std::vector<MeasuredBucket> buckets_;
  std::vector<double> all_;                    // sums of squares of all ranges
  Buffer ranges_, lanes_, squares_, scratch_;  // device memory, for those that this rank owns
  Buffer sums_;
  StepScalars block_;
  UpdateScalars update_;
};

}  // namespace gyre
