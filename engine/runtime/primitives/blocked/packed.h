// packed.h: many products with one second factor, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Gemm that packs b, of whole F32 (or, if the processor can, BF16) arrays.  No bias, no activation.
std::unique_ptr<PrimitiveLibrary> NewPackedProductsLibrary();

}  // namespace gyre
