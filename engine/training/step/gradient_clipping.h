// gradient_clipping.h: what must be known of all gradients before or beside the update: whether
// they are finite, and their norm.  Computed and used in device memory, so that a step needs no
// answer from the device before it is enqueued whole.
#pragma once

#include <optional>

#include "engine/runtime/device/device.h"
#include "engine/training/step_block.h"

namespace gyre {

// *sum <- the sum of the squares of the elements, added in double; not finite if an element is not,
// or (F64 beyond 1e154) if the squares overflow.  gradient: any real dtype; scratch:
// kSumSquaresScratchBytes.  All device memory.  Enqueues on stream.
absl::Status SumSquares(Stream& stream, Tensor gradient, void* scratch, double* sum);

// From the buckets' sums of squares to the report, and, with clip_norm, to update->gradient_scale:
// clip_norm / norm where the norm exceeds it.  All device memory.  Enqueues on stream.
absl::Status ClipGradients(Stream& stream, const double* sums, int buckets,
                           std::optional<double> clip_norm, UpdateScalars* update,
                           GradientReport* report);

}  // namespace gyre
