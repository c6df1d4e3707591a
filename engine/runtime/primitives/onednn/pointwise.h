// pointwise.h: convolution by a window of one pixel as three products of whole arrays.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// Whether three products can do it: one pixel, one group, neither padding nor bias, and weights in
// a layout of these.
bool IsPointwise(const Conv2dSpec& spec);

// F32 and BF16.  products: prepares the products, of the same type; it need not outlive this.
// Precondition: IsPointwise(spec), and it is valid.  Errors: those of `products`.
absl::StatusOr<std::unique_ptr<Conv2d>> PreparePointwise(const Conv2dSpec& spec, int threads,
                                                         const PrimitiveLibrary& products);

}  // namespace gyre
