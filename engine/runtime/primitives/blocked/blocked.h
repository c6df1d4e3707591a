// blocked.h: what the library's files share; inside the library only.  A valid spec is taken:
// of a convolution F32 or F64, of pooling any real type.
#pragma once

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareBlockedConv2d(const Conv2dSpec& spec);
absl::StatusOr<std::unique_ptr<Pool2d>> PrepareBlockedPool2d(const Pool2dSpec& spec);

}  // namespace gyre
