// depthwise.h: convolution where each channel is a group of its own and has one filter.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Depthwise Conv2d of F32 and F64 with its own layout of weights, on cpu and sim.  It leaves all
// else to others.  The bits depend on neither thread count nor instruction set.
std::unique_ptr<PrimitiveLibrary> NewDepthwiseLibrary();

}  // namespace gyre
