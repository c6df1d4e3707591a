// private_folder.h: a temporary folder that its user alone can read, whatever the umask.  It goes
// with the process that has made it, which holds a lock of a mark in it; where that is killed and
// leaves it, the next one that makes such a folder beside it removes it.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace gyre {

class PrivateFolder {
 public:
  // Makes `parent`/PREFIX_NAME, or shares the one that another process of this user has made.  Who
  // makes it first removes those of PREFIX_ that nobody holds any more: folders of this user alone
  // that have our mark.  Errors: those of the system; PermissionDenied for one of somebody else.
  static absl::StatusOr<PrivateFolder> Make(const std::string& parent, const std::string& prefix,
                                            const std::string& name);
  PrivateFolder(PrivateFolder&& other) noexcept
      : path_(std::move(other.path_)), mark_(std::exchange(other.mark_, -1)) {}
  ~PrivateFolder();  // the maker's removes the folder

  const std::string& path() const { return path_; }
  // Opens a new file, of this user alone, to be written; with the folders that `file` names.
  absl::StatusOr<int> Create(const std::string& file) const;

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
  int mark_ = -1;  // locked; -1: another process has made the folder
};

}  // namespace gyre
