// packed.h: many products with one second factor, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Gemm of whole arrays that packs b, without bias and activation.  F32, and BF16 if the processor
// multiplies it.
std::unique_ptr<PrimitiveLibrary> NewPackedProductsLibrary();

}  // namespace gyre
