// net_kernels.h: the net's own elementwise steps, for every real type.
#pragma once

#include "engine/runtime/device/device.h"

namespace gyre {

// to <- value, elementwise.  Enqueues on stream.
absl::Status Fill(Stream& stream, double value, Tensor to);
// to <- to + from, elementwise; equal lengths.  Enqueues on stream.
absl::Status AddInto(Stream& stream, Tensor from, Tensor to);

}  // namespace gyre
