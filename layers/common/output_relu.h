// output_relu.h: functors by which a layer applies the ReLU after it to its output, or to the
// output's gradient.  PlainOutput applies none.
#pragma once

#include "engine/runtime/dtype.h"
#include "engine/runtime/host_device.h"

namespace gyre {

// What a ReLU's backward loads of an element.
template <typename T>
struct OutputAndGradient {
  T y, dy;
};

// The ReLU layer of slope 0.  `max` is NaN without a bound.
template <typename T>
struct OutputRelu {
  using A = AccumulateType<T>;
  A max;  // a T
  explicit OutputRelu(double most) : max(static_cast<T>(static_cast<A>(most))) {}
  HOST_DEVICE A operator()(A v) const { return v > max ? max : v <= 0 ? A{0} : v; }
  // Whether the gradient of the stored y passes.
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
