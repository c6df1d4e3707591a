#include "engine/data/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace gyre {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder,
                                            std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  FolderLock lock;
  lock.file_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const Clock::time_point deadline = Clock::now() + patience;
  while (lock.file_ >= 0 && flock(lock.file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (Clock::now() > deadline) {
      return absl::AlreadyExistsError(absl::StrCat(
          folder, ": another run is writing there; wait for it, or choose another --out"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return lock;
}

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace gyre
