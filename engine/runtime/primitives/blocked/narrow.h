// narrow.h: convolution of few channels to few filters, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Conv2d of F32 whose channels and filters fill vectors badly, with its own layout of weights.
std::unique_ptr<PrimitiveLibrary> NewNarrowLibrary();

}  // namespace gyre
