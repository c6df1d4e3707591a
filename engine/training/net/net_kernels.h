// net_kernels.h: the net's own elementwise steps, for every real type.
#pragma once

#include <span>

#include "engine/runtime/device/device.h"

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
// to <- the sum of `terms` in order, elementwise, rounded once (once in 32 terms); equal lengths.
// `to` may be the first term.  Enqueues on stream.
absl::Status SumOf(Stream& stream, std::span<const Tensor> terms, Tensor to);

}  // namespace gyre
