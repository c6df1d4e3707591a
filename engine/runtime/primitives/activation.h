// activation.h: an Activation of a value, for libraries that compute it.  For primitives only.
#pragma once

#include <cstdint>

#include "engine/runtime/host_device.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// As in the ReLU layer, -0 becomes 0 and NaN stays NaN.
template <typename T>
HOST_DEVICE inline T Activate(Activation activation, T value) {
  return activation == Activation::kRelu && value <= T{0} ? T{0} : value;
}

}  // namespace gyre
