// near_file.h: what a path that leads nowhere may have been meant to be.  Reads folders; any
// thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace gyre {

// Of what lies beside the first part of `path` that is missing, the nearest name, and what then
// follows of `path` if it is there.  "" if nothing has a similar name.
std::string NearPath(const std::string& path);

// A status of a file or folder that could not be opened, with "; did you mean PATH?" after it if it
// is NotFound and there is a NearPath.
absl::Status WithNearFile(const absl::Status& status, const std::string& path);

}  // namespace gyre
