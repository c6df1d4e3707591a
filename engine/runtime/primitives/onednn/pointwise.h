// pointwise.h: convolution by a window of one pixel, as three products of whole arrays.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// True for one pixel and group, no padding, no bias, and a weight layout that the products can use.
bool IsPointwise(const Conv2dSpec& spec);

// Takes F32 and BF16.  `products` prepares products of the same type, and need not outlive the
// result.  Precondition: a valid spec with IsPointwise.  Errors: those of `products`.
absl::StatusOr<std::unique_ptr<Conv2d>> PreparePointwise(const Conv2dSpec& spec, int threads,
                                                         const PrimitiveLibrary& products);

}  // namespace gyre
