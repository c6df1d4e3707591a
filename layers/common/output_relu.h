// output_relu.h: what a layer does to its output for the ReLU after it, and to the gradient of that
// output where it does so backward too.  An Output functor is one of these two.
#pragma once

#include "engine/runtime/dtype.h"
#include "engine/runtime/host_device.h"

namespace gyre {

// As the ReLU layer of slope 0 has it, with a NaN for the largest value where there is none.
template <typename T>
struct OutputRelu {
  using A = AccumulateType<T>;
  A max;  // a T
  explicit OutputRelu(double most) : max(static_cast<T>(static_cast<A>(most))) {}
  HOST_DEVICE A operator()(A v) const { return v > max ? max : v <= 0 ? A{0} : v; }
  // Whether the gradient of what is stored as y goes on.
  HOST_DEVICE bool Passes(T y) const {
    const A v = static_cast<A>(y);
    return !(v <= 0) && !(v >= max);
  }
};

template <typename T>
struct PlainOutput {
  using A = AccumulateType<T>;
  HOST_DEVICE A operator()(A v) const { return v; }
  HOST_DEVICE bool Passes(T) const { return true; }
};

}  // namespace gyre
