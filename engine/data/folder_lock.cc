#include "engine/data/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace gyre {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder) {
  FolderLock lock;
  lock.file_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock.file_ >= 0 && flock(lock.file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::AlreadyExistsError(absl::StrCat(
        folder, ": another run is writing there; wait for it, or choose another --out"));
  }
  return lock;
}

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace gyre
