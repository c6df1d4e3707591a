// conversion.h: the net's own layer that changes the precision of a value and of its gradient.
#pragma once

#include <memory>

#include "layers/interface/layer.h"

namespace gyre {

// Takes one input of a real type.  Each element is rounded once.
std::unique_ptr<Layer> NewConversion(DType to);

}  // namespace gyre
