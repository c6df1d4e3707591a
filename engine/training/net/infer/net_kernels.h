// net_kernels.h: the net's own elementwise steps, for every real type.  All enqueue on stream.
#pragma once

#include <span>

#include "engine/runtime/device/device.h"
#include "engine/training/step_scalars.h"

namespace gyre {

absl::Status Fill(Stream& stream, double value, Tensor to);
// to <- value * *scale, elementwise, rounded once.  `scale` is in device memory.
absl::Status FillScaled(Stream& stream, double value, const double* scale, Tensor to);
// to <- from, elementwise, between any two real types.  16 bits are reached by way of F32.
absl::Status Convert(Stream& stream, Tensor from, Tensor to);
// to[i] <- values[i mod C, pixels[i]].  `pixels` is U8, and `values` is [C * 256] of `to`'s type.
absl::Status LookUp(Stream& stream, Tensor pixels, Tensor values, Tensor to);
// mean <- mean * kept + added * (sum of `terms`), in the terms' AccumulateType, mean's type.  Then
// to <- mean, rounded, unless `to` is null.  Lengths are equal, and `weights` is in device memory.
absl::Status AddToMean(Stream& stream, std::span<const Tensor> terms, const BatchMean* weights,
                       Tensor mean, Tensor to);
// Advances `weights` to the next of a step's `batches`.  A batch weighs *count, or as much as any
// other if `count` is null.  All is device memory.
absl::Status Weigh(Stream& stream, const StepScalars* block, const double* count, int64_t batches,
                   BatchMean* weights);
// to <- the sum of `terms` in order, elementwise, rounded once for each 32 terms.  All lengths are
// equal.  `to` may be the first term.
absl::Status SumOf(Stream& stream, std::span<const Tensor> terms, Tensor to);

}  // namespace gyre
