// math.h: arithmetic that everyone needs, on host and device.
#pragma once

#include <cstring>

#include "engine/runtime/host_device.h"

namespace gyre {

// Returns a / b, rounded up.  Precondition: a >= 0, b > 0, and a + b - 1 is representable.
template <typename Integer>
HOST_DEVICE constexpr Integer CeilDiv(Integer a, Integer b) {
  return (a + b - 1) / b;
}

// Returns the smallest multiple of `multiple` that is not below a.
template <typename Integer>
HOST_DEVICE constexpr Integer RoundUp(Integer a, Integer multiple) {
  return CeilDiv(a, multiple) * multiple;
}

// c[0] + c[1] x + c[2] x^2 + ..., in A.
template <typename A, typename First, typename... Rest>
HOST_DEVICE constexpr A Polynomial(A x, First c, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return static_cast<A>(c);
  } else {
    return static_cast<A>(c) + x * Polynomial(x, rest...);
  }
}

// std::bit_cast, which nvcc has on the host alone.
template <typename To, typename From>
HOST_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace gyre
