// text_encoding.h: the encoding that the first bytes of a text file show.  Pure.  Any thread.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace gyre {

// Some editors write this at the beginning of a file in UTF-8.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// The text without a byte order mark at its beginning.
// Errors: InvalidArgument for UTF-16 and UTF-32, without the file's name.
absl::StatusOr<std::string_view> WithoutMark(std::string_view text);

}  // namespace gyre
