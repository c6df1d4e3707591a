// convert.h: arrays of 16-bit numbers to F32 and back on a CPU, with half.h's bits, at the rate at
// which memory is copied; inside the library only.
#pragma once

#include <cstdint>

#include "engine/runtime/device/device.h"
#include "engine/runtime/half.h"

namespace gyre {

// to[i] = from[i] for i in [0, n); one of From and To is float, the other Half or BFloat16.
// Enqueues on stream, a CPU's; the arrays must outlive the work.
template <typename From, typename To>
absl::Status ConvertArray(Stream& stream, int64_t n, const From* from, To* to);

}  // namespace gyre
