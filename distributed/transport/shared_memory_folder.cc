// shared_memory_folder.cc: see shared_memory_folder.h.
//
// A folder is locked (flock) by the process that made it.  The lock ends with the process, however
// it ends, so a folder that can be locked is abandoned, whatever pid namespace it came from.

#include "distributed/transport/shared_memory_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

constexpr char kPrefix[] = "gyre.";

// The folder, open and locked, or -1: it is gone, or another process has the lock.
int OpenLocked(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  struct stat stat;
  if (flock(folder, LOCK_EX | LOCK_NB) == 0 && fstat(folder, &stat) == 0 && stat.st_nlink > 0 &&
      stat.st_uid == geteuid()) {
    return folder;
  }
  close(folder);
  return -1;
}

void RemoveAbandoned(const std::string& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!absl::StartsWith(entry->path().filename().string(), kPrefix)) continue;
    const int folder = OpenLocked(entry->path());
    if (folder < 0) continue;
    std::error_code ignored;
    std::filesystem::remove_all(entry->path(), ignored);
    close(folder);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryFolder>> SharedMemoryFolder::Create(
    const std::string& parent) {
  RemoveAbandoned(parent);
  // Another process may find the folder in the moment before it is locked, and remove it.
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::string path = absl::StrCat(parent, "/", kPrefix, "XXXXXX");
    if (mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("cannot create a folder in ", parent, ": ", strerror(errno)));
    }
    if (const int lock = OpenLocked(path); lock >= 0) {
      return std::unique_ptr<SharedMemoryFolder>(new SharedMemoryFolder(std::move(path), lock));
    }
  }
  return absl::UnavailableError(absl::StrCat("cannot lock a new folder in ", parent));
}

SharedMemoryFolder::~SharedMemoryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  close(lock_);
}

}  // namespace gyre
