// net_kernels.h: the net's own elementwise steps, for every real type.
#pragma once

#include <span>

#include "engine/runtime/device/device.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// to <- value, elementwise.  Enqueues on stream.
absl::Status Fill(Stream& stream, double value, Tensor to);
// to <- value * *scale, elementwise, rounded once.  scale: device memory.  Enqueues on stream.
absl::Status FillScaled(Stream& stream, double value, const double* scale, Tensor to);
// to <- from, elementwise, of any two real types; to 16 bits by way of F32.  Enqueues on stream.
absl::Status Convert(Stream& stream, Tensor from, Tensor to);
// to[i] <- values[i mod C, pixels[i]].  pixels: U8; values: [C * 256], of to's type.  Enqueues on
// stream.
absl::Status LookUp(Stream& stream, Tensor pixels, Tensor values, Tensor to);
// mean <- mean * kept + added * the sum of `terms`, in mean's type, AccumulateType of the terms';
// and to <- mean, rounded, unless `to` is null.  Equal lengths.  weights: device memory.  Enqueues
// on stream.
absl::Status AddToMean(Stream& stream, std::span<const Tensor> terms, const BatchMean* weights,
                       Tensor mean, Tensor to);
// Moves the weights on to the next batch, by *count where a loss counts (else null: all batches
// weigh the same); batches: of a step.  All in device memory.  Enqueues on stream.
absl::Status Weigh(Stream& stream, const StepScalars* block, const double* count, int64_t batches,
                   BatchMean* weights);
// to <- the sum of `terms` in order, elementwise, rounded once (once in 32 terms); equal lengths.
// `to` may be the first term.  Enqueues on stream.
absl::Status SumOf(Stream& stream, std::span<const Tensor> terms, Tensor to);

}  // namespace gyre
