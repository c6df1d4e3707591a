// near_file.h: suggests the path that a user may have meant.  Reads folders.  Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace gyre {

// `path` with its first missing part replaced by the nearest name there, and the rest if it exists.
// "" if no name is near.
std::string NearPath(const std::string& path);

// `status`, of a file or folder that could not be opened.  Appends "; did you mean PATH?" if it is
// NotFound and there is a NearPath.
absl::Status WithNearFile(const absl::Status& status, const std::string& path);

}  // namespace gyre
