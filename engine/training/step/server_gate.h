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
  const GradientReport& report() const { return block_.gradients; }
  // Owners use its gradient_scale, skip, decay, correction and first, the only fields set.
  const UpdateScalars& update() const { return update_; }
  // Whether a gradient is not finite and no smaller loss scale will help.
  bool diverged() const;

 private:
  ServerGate(const Model& model, const Optimizer& optimizer, Stream& stream,
             ParameterServer& server);
  absl::Status Measure();
  absl::Status TellAll();

  const Model& model_;
  const Optimizer& optimizer_;
  Stream& stream_;
  ParameterServer& server_;
  LossScaleState loss_scale_;
  UpdateGroups groups_;
  UpdateGate gate_;
  struct MeasuredRange {
    int bucket = 0, number = 0;  // index into the bucket's MeasuredRanges
  };
  std::vector<std::vector<MeasuredRange>> pieces_;  // by rank: the ranges that it owns
  std::vector<std::vector<double>> of_ranks_;       // by rank: the sums of squares of pieces_
  std::vector<std::vector<double>> squares_of_;     // by bucket, then range
  std::vector<int64_t> own_;                        // by bucket: ranges that this rank owns
  Buffer ranges_, lanes_, squares_, scratch_;       // device memory, for own_
  Buffer sums_;
  StepScalars block_;
  UpdateScalars update_;
};

}  // namespace gyre
