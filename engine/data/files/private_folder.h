// private_folder.h: a temporary folder that its user alone can read, whatever the umask.  Its maker
// locks a mark in it and removes it.  If killed, the next maker of a folder beside it removes it.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace gyre {

class PrivateFolder {
 public:
  // Makes `parent`/PREFIX_NAME, or shares the one of another process of this user.  The maker first
  // removes unlocked folders PREFIX_... of this user that have our mark.
  // Errors: the system's, and PermissionDenied for another user's folder.
  static absl::StatusOr<PrivateFolder> Make(const std::string& parent, const std::string& prefix,
                                            const std::string& name);
  PrivateFolder(PrivateFolder&& other) noexcept
      : path_(std::move(other.path_)), mark_(std::exchange(other.mark_, -1)) {}
  ~PrivateFolder();  // the maker's removes the folder

  const std::string& path() const { return path_; }
  // Opens a new file for writing, readable by this user alone, and makes the folders in `file`.
  absl::StatusOr<int> Create(const std::string& file) const;

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
  int mark_ = -1;  // locked.  -1: another process made the folder
};

}  // namespace gyre
