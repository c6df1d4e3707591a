// depthwise.h: convolution where each channel is a group of its own and has one filter.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Conv2d of F32 and F64, with its own layout of weights.  Its bits depend on no instruction set.
std::unique_ptr<PrimitiveLibrary> NewDepthwiseLibrary();

}  // namespace gyre
