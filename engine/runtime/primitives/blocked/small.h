// small.h: many small products of parts of arrays, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Gemm of F32 without bias and activation of parts of arrays, such as the heads of an attention,
// that are small enough for a second-level cache; cpu and sim.  All else, and everything on a
// processor without AVX-512, it leaves to others.  The bits do not depend on the thread count.
std::unique_ptr<PrimitiveLibrary> NewSmallProductsLibrary();

}  // namespace gyre
