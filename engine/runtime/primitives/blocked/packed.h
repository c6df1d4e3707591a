// packed.h: many products with one second factor, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Gemm of whole arrays that packs b, without bias and activation.  F32, and BF16 if the processor
// multiplies it.  cpu and sim.  It leaves all else to others, and everything without AVX-512.  The
// thread count does not change the bits.
std::unique_ptr<PrimitiveLibrary> NewPackedProductsLibrary();

}  // namespace gyre
