// few_terms.h: large products that are sums of few terms, by AVX-512.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Gemm of whole F32 arrays with a transposed and b not, which assigns c without bias and
// activation.  An example is the gradient of a dense layer's many weights, for few samples.
std::unique_ptr<PrimitiveLibrary> NewFewTermsLibrary();

}  // namespace gyre
