// new_folder.h: a folder that a tool makes, whole or not at all.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace gyre {

// Calls `write` with a folder to fill, and gives it the name `path` if that succeeds.
// Errors: InvalidArgument for no path; AlreadyExists; those of making folders and of `write`.
absl::Status WriteNewFolder(const std::string& path,
                            const std::function<absl::Status(const std::string& folder)>& write);

// Makes a folder in one that is being filled.
absl::Status MakeFolder(const std::string& path);

// And a file; the whole folder is synced before it gets its name.
absl::Status WriteText(const std::string& path, const std::string& text);

}  // namespace gyre
