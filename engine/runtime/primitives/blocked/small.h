// small.h: many small products of slices of arrays, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Gemm of F32 without bias and activation, of slices of arrays that fit a second-level cache, such
// as an attention's heads.
std::unique_ptr<PrimitiveLibrary> NewSmallProductsLibrary();

}  // namespace gyre
