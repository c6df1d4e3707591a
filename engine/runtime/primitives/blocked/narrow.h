// narrow.h: convolution of few channels to few filters, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Conv2d of F32 whose channels and filters fill vectors badly, with its own layout of weights, cpu
// and sim; all else, and everything on a processor without AVX-512, it leaves to others.  The bits
// do not depend on the thread count.
std::unique_ptr<PrimitiveLibrary> NewNarrowLibrary();

}  // namespace gyre
