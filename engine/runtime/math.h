// math.h: arithmetic of extents and sizes that everyone needs, on host and device.
#pragma once

#include "engine/runtime/host_device.h"

namespace gyre {

// The smallest integer not below a / b.  Precondition: a >= 0, b > 0, and a + b - 1 is
// representable.
template <typename Integer>
HOST_DEVICE constexpr Integer CeilDiv(Integer a, Integer b) {
  return (a + b - 1) / b;
}

// The smallest multiple of `multiple` not below a.
template <typename Integer>
HOST_DEVICE constexpr Integer RoundUp(Integer a, Integer multiple) {
  return CeilDiv(a, multiple) * multiple;
}

}  // namespace gyre
