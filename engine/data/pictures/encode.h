// encode.h: writes bytes [height, width, channels] as a picture.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/pictures/resize.h"

namespace gyre {

// The file's bytes, of grey (1 channel), red, green, blue (3), or with alpha (4).
// Errors: InvalidArgument where the format cannot hold them.
absl::StatusOr<std::string> PngOf(const Pixels& pixels);
// Quality 1 to 100.  Not of alpha.
absl::StatusOr<std::string> JpegOf(const Pixels& pixels, int quality);

}  // namespace gyre
