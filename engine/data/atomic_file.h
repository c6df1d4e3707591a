// atomic_file.h: files that are either whole or absent.  A file is written under a temporary name
// in the same folder, synced, and renamed; so is a folder of files.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gyre {

// Appends bytes to the file being written.
using FileSink = std::function<absl::Status(std::string_view bytes)>;

// Calls `write` with a sink and publishes the file at `path` if it succeeds; otherwise removes the
// temporary. Errors: those of `write`; PermissionDenied, NotFound or ResourceExhausted naming path
// and errno's text.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::function<absl::Status(const FileSink&)>& write);

// Likewise for a folder: `fill` writes files into a temporary folder, whose path it is given;
// each is synced, then the folder takes its name.  An existing folder of that name is replaced.
absl::Status WriteFolderAtomically(const std::string& path,
                                   const std::function<absl::Status(const std::string&)>& fill);

absl::StatusOr<std::string> ReadFile(const std::string& path);

// Lower-case hex SHA-256.
std::string Sha256(std::string_view bytes);
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

}  // namespace gyre
