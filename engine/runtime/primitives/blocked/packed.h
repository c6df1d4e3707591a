// packed.h: products whose second factor stays what it is for many of them, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Gemm of F32, and of BF16 where the processor multiplies it, that packs b, of whole arrays,
// without bias and activation; cpu and sim.  All else, and everything on a processor without
// AVX-512, it leaves to others.  The bits do not depend on the thread count.
std::unique_ptr<PrimitiveLibrary> NewPackedProductsLibrary();

}  // namespace gyre
