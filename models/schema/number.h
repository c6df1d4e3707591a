// number.h: what a number may look like in a model's text and in --set, which protobuf's text
// format reads alike: 10, -3, 0x1f, 0.5, 5e-4, .5f, inf, nan.  Pure; any thread.
//
// Beyond protobuf, a number is refused that others read as another one: 010, which is 8 in octal,
// and 1e-400, which is 0 in 64 bits.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gyre {

// What is wrong with the first bad number of a text; "" if none is.
std::string WrongNumber(std::string_view text);

// The same of a file, which protobuf's parser has accepted: InvalidArgument "file:line:column:
// ...".
absl::Status CheckNumbers(std::string_view text, const std::string& file);

}  // namespace gyre
