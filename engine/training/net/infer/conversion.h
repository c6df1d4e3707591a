// conversion.h: the net's own layer between layers of different precisions: values on the way
// forward, and their gradients on the way back.
#pragma once

#include <memory>

#include "layers/interface/layer.h"

namespace gyre {

// Of one input of a real type, each element rounded once.
std::unique_ptr<Layer> NewConversion(DType to);

}  // namespace gyre
