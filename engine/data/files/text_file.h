// text_file.h: reads a text file, whatever editor has written it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace gyre {

// The text without a byte order mark.  That it is UTF-8 is not checked.
// Errors, naming path: those of ReadFile, and InvalidArgument for UTF-16 and UTF-32.
absl::StatusOr<std::string> ReadText(const std::string& path);

// Calls `line` for each line of a text, numbered from 1, without its end, which is \n or \r\n.
// Returns the first error, after which no line is read.
absl::Status ForEachLine(std::string_view text,
                         absl::FunctionRef<absl::Status(int64_t, std::string_view)> line);

}  // namespace gyre
