// few_terms.h: large products that are sums of few terms, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Gemm of whole F32 arrays with a transposed and b not, such as the gradient of a dense layer's
// weights, of few samples and many weights; without bias and activation, not added to c; cpu and
// sim.  All else, and everything on a processor without AVX-512, it leaves to others.  The bits do
// not depend on the thread count.
std::unique_ptr<PrimitiveLibrary> NewFewTermsLibrary();

}  // namespace gyre
