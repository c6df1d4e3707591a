// text_file.h: a text file in memory, whatever editor has written it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gyre {

// The file's text in UTF-8, without a byte order mark; that it is UTF-8 is not checked.
// Errors, naming path: those of ReadFile; InvalidArgument for UTF-16 and UTF-32.
absl::StatusOr<std::string> ReadText(const std::string& path);

}  // namespace gyre
