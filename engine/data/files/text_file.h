// text_file.h: reads a text file, whatever editor has written it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gyre {

// The text without a byte order mark.  That it is UTF-8 is not checked.
// Errors, naming path: those of ReadFile, and InvalidArgument for UTF-16 and UTF-32.
absl::StatusOr<std::string> ReadText(const std::string& path);

}  // namespace gyre
