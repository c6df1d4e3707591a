// blocked.h: the operations of the libraries of this room.  Inside them only.  Specs are valid.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Preconditions: F32 or F64 for a convolution, any real type for pooling.
absl::StatusOr<std::unique_ptr<Conv2d>> PrepareBlockedConv2d(const Conv2dSpec& spec);
absl::StatusOr<std::unique_ptr<Pool2d>> PrepareBlockedPool2d(const Pool2dSpec& spec);

// By AVX-512, which is a precondition.  Return null for a spec that they leave to others.
//
// Packs b, of whole F32 (or, if the processor can, BF16) arrays.  No bias, no activation.
std::unique_ptr<Gemm> PreparePackedProduct(const GemmSpec& spec);
// F32 without bias and activation, of slices of arrays that fit a second-level cache, such as an
// attention's heads.
std::unique_ptr<Gemm> PrepareSmallProducts(const GemmSpec& spec);
// A large result with sums of few terms, of whole F32 arrays, a transposed and b not.  It assigns c
// without bias and activation.  An example is the gradient of a dense layer's many weights, for few
// samples.
std::unique_ptr<Gemm> PrepareFewTerms(const GemmSpec& spec);
// F32 whose channels and filters fill vectors badly, with its own layout of weights.
std::unique_ptr<Conv2d> PrepareNarrow(const Conv2dSpec& spec);
// F32 windows of 3 x 3 between many channels, forward alone, with its own layout of weights.
std::unique_ptr<Conv2d> PrepareWinograd(const Conv2dSpec& spec);

}  // namespace gyre
