// update_gate.h: what must be known of all gradients before, or beside, the update: whether they
// are finite, and their norm.  With it the update is clipped, or left out.  Computed and used in
// device memory, so that a step needs no answer from the device before it is enqueued whole.
#pragma once

#include <optional>

#include "distributed/collectives/reduction.h"
#include "engine/runtime/device/device.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// *sum <- the sum of the squares of the elements, added in double; not finite if an element is not,
// or (F64 beyond 1e154) if the squares overflow.  gradient: any real dtype; scratch:
// kSumSquaresScratchBytes.  All device memory.  Enqueues on stream.
absl::Status SumSquares(Stream& stream, Tensor gradient, void* scratch, double* sum);

struct UpdateGate {
  std::optional<double> clip_norm = {};  // the most that the norm may be
  // Of a dynamic loss scale: device memory, and the good steps in a row that double it.
  LossScaleState* loss_scale = nullptr;
  int64_t growth_interval = 0;
  double shares = 1;  // the gradients are of the batch what its mean is of so many such

  // Whether no update may begin before it is passed.
  bool holds() const { return clip_norm.has_value() || loss_scale != nullptr; }
};

// From the buckets' sums of squares to block->gradients and to update, one of block->updates: its
// gradient_scale, which takes the loss's scale out and clips.  A dynamic loss scale goes on to the
// next step; a gradient that is not finite has the update skipped, else it gets its correction, for
// which skipped ones do not count.  All device memory.  Enqueues on stream.
absl::Status PassGate(Stream& stream, const UpdateGate& gate, const double* sums, int buckets,
                      UpdateScalars* update, StepScalars* block);

// The same at once, of host memory.
void PassGateOnHost(const UpdateGate& gate, const double* sums, int buckets, UpdateScalars* update,
                    StepScalars* block);

// squares[i] <- the sum of squares of elements `pieces[i]`, as AddAll (distributed/collectives)
// adds them, of a bucket's part that begins with its element `first`.  lanes: kSquareLanes a piece.
// All device memory.  Enqueues on stream.
absl::Status SumSquaresOfRanges(Stream& stream, Tensor part, int64_t first,
                                const ElementRange* pieces, int64_t count, double* lanes,
                                double* squares);

// What a rank sends that clips and skips by itself: gradient <- gradient * update->gradient_scale,
// or, where report->bad_bucket or update->skip says so, all NaN: it is to be dropped.
// update and report: device memory.  Enqueues on stream.
absl::Status ScaleOrSpoil(Stream& stream, Tensor gradient, const UpdateScalars* update,
                          const GradientReport* report);

// What takes it: *to <- value; if the gradient is one to be dropped to->skip, counted in *dropped,
// else with the correction of update `number` less those that were dropped.  gradient is not empty.
// But for value, device memory.  Enqueues on stream.
absl::Status SetUpdateUnlessSpoilt(Stream& stream, Tensor gradient, const UpdateScalars& value,
                                   int64_t number, int64_t* dropped, UpdateScalars* to);

// *state <- value.  Enqueues on stream.
absl::Status SetLossScale(Stream& stream, const LossScaleState& value, LossScaleState* state);

// *update <- value.  Likewise.
absl::Status SetUpdate(Stream& stream, const UpdateScalars& value, UpdateScalars* update);

}  // namespace gyre
