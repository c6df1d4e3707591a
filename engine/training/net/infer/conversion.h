// conversion.h: the net's own layer that converts values to another precision, and their gradients
// back.
#pragma once

#include <memory>

#include "layers/interface/layer.h"

namespace gyre {

// Takes one input of a real type.  Each element is rounded once.
std::unique_ptr<Layer> NewConversion(DType to);

}  // namespace gyre
