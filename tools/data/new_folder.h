// new_folder.h: makes a folder that is whole or absent.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace gyre {

// Calls `write` with a folder to fill, and renames it to `path` on success.
// Errors: InvalidArgument for no path, AlreadyExists, those of making folders and of `write`.
absl::Status WriteNewFolder(const std::string& path,
                            const std::function<absl::Status(const std::string& folder)>& write);

// Makes a folder within a folder that is being filled.
absl::Status MakeFolder(const std::string& path);

// Writes a file there.  The whole folder is synced before it is renamed.
absl::Status WriteText(const std::string& path, const std::string& text);

}  // namespace gyre
