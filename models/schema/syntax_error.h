// syntax_error.h: explains why a text is not a valid message, in a second reading of texts that
// failed.  It follows the message's descriptor and names fields that a user can change.  The parser
// of protobuf stops at the token after the mistake and names types.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"

namespace gyre {

// InvalidArgument for the first mistake in `text`, as `file:line:column: layer "conv1": ...`.  The
// layer is named if it has a name.  OK if this reading finds no mistake.
absl::Status FindSyntaxError(std::string_view text, const std::string& file,
                             const google::protobuf::Descriptor& message);

}  // namespace gyre
