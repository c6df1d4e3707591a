// update_gate.h: decides by the norm of all gradients whether an update is clipped or skipped.  It
// works in device memory, so the host enqueues a whole step without waiting.
#pragma once

#include <optional>

#include "distributed/collectives/reduction.h"
#include "engine/runtime/device/device.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// *sum <- the sum of the squares of the elements of a real dtype, added in double.  *sum is not
// finite if an element is not, or if the squares overflow (F64 beyond 1e154).  All is device
// memory, and `scratch` has kSumSquaresScratchBytes.  Enqueues on stream.
absl::Status SumSquares(Stream& stream, Tensor gradient, void* scratch, double* sum);

struct UpdateGate {
  std::optional<double> clip_norm = {};  // upper bound of the norm
  // A dynamic loss scale in device memory.  It doubles after `growth_interval` good steps in a row.
  LossScaleState* loss_scale = nullptr;
  int64_t growth_interval = 0;
  double shares = 1;  // the norm of the batch's gradient is so many times theirs

  // Whether all gradients must be known before an update begins.
  bool holds() const { return clip_norm.has_value() || loss_scale != nullptr; }
};

// Decides from the buckets' sums of squares.  All is device memory.  Enqueues on stream.  Sets
// block->gradients, and gradient_scale of `update`, one of block->updates, which removes the loss
// scale and clips.  A dynamic loss scale advances to the next step, and a gradient that is not
// finite sets update->skip.  Other updates get their correction, which does not count skipped
// steps.
absl::Status PassGate(Stream& stream, const UpdateGate& gate, const double* sums, int buckets,
                      UpdateScalars* update, StepScalars* block);

// squares[i] <- the sum of squares of elements pieces[i] of a bucket, in AddAll's order
// (distributed/collectives).  `part` has the bucket's elements from `first` on, and `lanes` has
// kSquareLanes a range.  All is device memory.  Enqueues on stream.
absl::Status SumSquaresOfRanges(Stream& stream, Tensor part, int64_t first,
                                const ElementRange* pieces, int64_t count, double* lanes,
                                double* squares);

// gradient <- gradient * update->gradient_scale.  A rank that clips and skips alone does so before
// it sends.  If report->bad_bucket or update->skip says so, gradient <- NaN, and the owner drops
// it.  `update` and `report` are device memory.  Enqueues on stream.
absl::Status ScaleOrSpoil(Stream& stream, Tensor gradient, const UpdateScalars* update,
                          const GradientReport* report);

// *to <- value, before an owner applies such a gradient.  A gradient to be dropped sets to->skip
// and increments *dropped.  Other updates get the correction of update `number` less *dropped.  All
// but `value` is device memory, and the gradient is not empty.  Enqueues on stream.
absl::Status SetUpdateUnlessSpoilt(Stream& stream, Tensor gradient, const UpdateScalars& value,
                                   int64_t number, int64_t* dropped, UpdateScalars* to);

// Both store `value` in device memory.  Enqueues on stream.
absl::Status SetLossScale(Stream& stream, const LossScaleState& value, LossScaleState* state);
absl::Status SetUpdate(Stream& stream, const UpdateScalars& value, UpdateScalars* update);

}  // namespace gyre
