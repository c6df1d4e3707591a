// convert.h: converts arrays between 16-bit types and F32 on a CPU, with half.h's bits, as fast as
// memory is copied.  Inside the library only.
#pragma once

#include <cstdint>

#include "engine/runtime/device/device.h"
#include "engine/runtime/half.h"

namespace gyre {

// to[i] = from[i] for i in [0, n).  One of From and To is float, the other Half or BFloat16.
// Enqueues on a CPU's stream.  The arrays must outlive the work.
template <typename From, typename To>
absl::Status ConvertArray(Stream& stream, int64_t n, const From* from, To* to);

}  // namespace gyre
