#include "tools/data/new_folder.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/check.h"

namespace gyre {

namespace fs = std::filesystem;

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::Status(absl::ErrnoToStatusCode(error.value()),
                      absl::StrCat("cannot create ", path, ": ", error.message()));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good()
             ? absl::OkStatus()
             : absl::ErrnoToStatus(errno != 0 ? errno : EIO, absl::StrCat("cannot write ", path));
}

absl::Status WriteNewFolder(const std::string& path,
                            const std::function<absl::Status(const std::string& folder)>& write) {
  if (path.empty()) return absl::InvalidArgumentError("--out is missing; see --help");
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " is there already; remove it, or choose another --out"));
  }
  if (const fs::path parent = fs::path(path).parent_path(); !parent.empty()) {
    RETURN_IF_ERROR(MakeFolder(parent.string()));
  }
  ASSIGN_OR_RETURN(const std::string staged, StageFolder(path, std::to_string(getpid())));
  const absl::Status written = write(staged);
  if (written.ok()) return PublishFolder(staged, path);
  fs::remove_all(staged, ignored);
  return written;
}

}  // namespace gyre
