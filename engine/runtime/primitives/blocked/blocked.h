// blocked.h: the operations of the library.  Inside the library only.  Preconditions: a valid spec,
// of F32 or F64 for a convolution and of any real type for pooling.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareBlockedConv2d(const Conv2dSpec& spec);
absl::StatusOr<std::unique_ptr<Pool2d>> PrepareBlockedPool2d(const Pool2dSpec& spec);

}  // namespace gyre
