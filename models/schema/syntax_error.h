// syntax_error.h: says why a text is not a valid message.  protobuf's own parser stops at the token
// after the mistake and speaks of type names; this second reading, made only of texts that failed,
// follows the message's descriptor and names what a user can change.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"

namespace gyre {

// InvalidArgument for the first mistake in `text`: `file:line:column: layer "conv1": ...`, the
// layer's part if the mistake is inside one that has a name.  OK if this reading finds none.
absl::Status FindSyntaxError(std::string_view text, const std::string& file,
                             const google::protobuf::Descriptor& message);

}  // namespace gyre
