// number.h: the numbers that a model's text and --set take, as protobuf's text format does, such as
// 10, -3, 0x1f, 0.5, 5e-4, .5f, inf, nan.  Pure.  Any thread.
//
// Unlike protobuf, it refuses 010, which is 8 in octal, and 1e-400, which is 0 in 64 bits.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gyre {

// The error about the first bad number of a text, or "".
std::string WrongNumber(std::string_view text);

// The same for a file that protobuf's parser accepted.
// Errors: InvalidArgument "file:line:column: ...".
absl::Status CheckNumbers(std::string_view text, const std::string& file);

}  // namespace gyre
