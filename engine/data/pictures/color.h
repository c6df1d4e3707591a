// color.h: colours that a text names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace gyre {

// Red, green and blue of "#rrggbb" or one of HTML's 16 names, such as "white".
// Errors: InvalidArgument with the names.
absl::StatusOr<std::array<uint8_t, 3>> ParseColor(std::string_view text);

}  // namespace gyre
