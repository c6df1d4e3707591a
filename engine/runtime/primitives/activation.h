// activation.h: what an Activation does to a value, for the libraries that compute it
// themselves; inside the primitives only.
#pragma once

#include <cstdint>

#include "engine/runtime/host_device.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// As the ReLU layer has it: -0 becomes 0, NaN stays.
template <typename T>
HOST_DEVICE inline T Activate(Activation activation, T value) {
  return activation == Activation::kRelu && value <= T{0} ? T{0} : value;
}

}  // namespace gyre
