// server_gate.h: the update gate of owners in bsp.  Once a step's gradients are summed and before
// they are applied each owner measures its parts' pieces (RunShape::MeasuredRanges), and all ranks
// tell each other: so all have the sums of squares that `direct` has, and make of them the same.
//
// Used by the thread that owns the stream; what it has found is for whoever applies.
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
  // device: where the server's rows lie, with a stream of it.  All arguments outlive the result.
  // Precondition: the server is gated, and its tables are the model's buckets.  Errors: those of
  // allocation.
  static absl::StatusOr<std::unique_ptr<ServerGate>> Create(const Model& model,
                                                            const Optimizer& optimizer,
                                                            Device& device, Stream& stream,
                                                            ParameterServer& server);

  // Of a dynamic loss scale, as PassGate's.
  void SetLossScale(const LossScaleState& state) { loss_scale_ = state; }

  // All has been sent of the step; on all ranks.  Blocks until all ranks know the sums of squares,
  // then lets owners apply what they have.  Does nothing after a step that has diverged: no rank
  // makes another one.  Errors: those of ranks.
  absl::Status Pass(int64_t step);

  // What Pass has found: F64 in pinned host memory, by bucket; and has made of it.
  const double* sums() const { return reinterpret_cast<const double*>(sums_.data()); }
  const GradientReport& report() const { return block_.gradients; }
  // Of the update: gradient_scale, skip, decay and correction.
  const UpdateScalars& update() const { return update_; }
  // A gradient is not finite, which no smaller loss scale will help.
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
  UpdateGate gate_;
  struct MeasuredRange {
    int bucket = 0, number = 0;  // index into its MeasuredRanges
  };
  std::vector<std::vector<MeasuredRange>> pieces_;  // by rank: those that it owns
  std::vector<std::vector<double>> of_ranks_;       // likewise: their squares
  // Of all of a bucket's pieces; and how many this rank owns.
  std::vector<std::vector<double>> squares_of_;
  std::vector<int64_t> own_;
  Buffer ranges_, lanes_, squares_, scratch_;  // of these; device memory
  Buffer sums_;
  StepScalars block_;
  UpdateScalars update_;
};

}  // namespace gyre
