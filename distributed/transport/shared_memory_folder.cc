// shared_memory_folder.cc: see shared_memory_folder.h.
//
// The mark is a file that only this code writes, locked (flock) by the process that made it.  The
// lock ends with the process, however it ends, so a mark that can be locked is abandoned, whatever
// pid namespace it came from.  A folder without the mark belongs to somebody else.

#include "distributed/transport/shared_memory_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr char kPrefix[] = "gyre.mpi-segments.";
constexpr char kMarkName[] = "made-by-gyre";
constexpr std::string_view kMark =
    "Gyre made this folder for Open MPI's shared memory, and removes it.\n";

std::string MarkOf(const std::string& folder) { return absl::StrCat(folder, "/", kMarkName); }

// The folder's mark, open and locked, or -1: there is none of this user's, or its process lives.
int OpenAbandonedMark(const std::string& folder) {
  const int mark = open(MarkOf(folder).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (mark < 0) return -1;
  struct stat stat;
  std::array<char, kMark.size()> text;
  const auto size = static_cast<ssize_t>(text.size());
  // The process that marks a folder locks the file before it writes.
  if (flock(mark, LOCK_EX | LOCK_NB) == 0 && fstat(mark, &stat) == 0 && S_ISREG(stat.st_mode) &&
      stat.st_nlink == 1 && stat.st_uid == geteuid() && stat.st_size == size &&
      read(mark, text.data(), text.size()) == size &&
      std::string_view(text.data(), text.size()) == kMark) {
    return mark;
  }
  close(mark);
  return -1;
}

// Removes the files of a marked folder, the mark last, and the folder if it is empty then.  Returns
// the names of the others.
std::vector<std::string> RemoveMarked(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename();
    if (name != kMarkName && unlink(entry->path().c_str()) == 0) names.push_back(std::move(name));
  }
  unlink(MarkOf(folder).c_str());
  rmdir(folder.c_str());
  return names;
}

void RemoveAbandoned(const std::string& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!absl::StartsWith(entry->path().filename().string(), kPrefix) ||
        !entry->is_directory(error) || entry->is_symlink(error)) {
      continue;
    }
    const int mark = OpenAbandonedMark(entry->path());
    if (mark < 0) continue;
    RemoveMarked(entry->path());
    close(mark);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryFolder>> SharedMemoryFolder::Create(
    const std::string& parent) {
  RemoveAbandoned(parent);
  std::string path = absl::StrCat(parent, "/", kPrefix, "XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot create a folder in ", parent, ": ", strerror(errno)));
  }
  std::unique_ptr<SharedMemoryFolder> folder(new SharedMemoryFolder(std::move(path)));
  RETURN_IF_ERROR(folder->Mark());
  return folder;
}

absl::Status SharedMemoryFolder::Mark() {
  const std::string path = MarkOf(path_);
  lock_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  // Waits: another process that looks for abandoned folders may hold the lock for a moment.
  if (lock_ < 0 || flock(lock_, LOCK_EX) != 0 ||
      write(lock_, kMark.data(), kMark.size()) != static_cast<ssize_t>(kMark.size())) {
    return absl::UnavailableError(absl::StrCat("cannot mark ", path_, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

void SharedMemoryFolder::Remove() const { RemoveMarked(path_); }

void SharedMemoryFolder::Hide() {
  if (lock_ < 0) return;
  hidden_ = RemoveMarked(path_);
  close(std::exchange(lock_, -1));
}

void SharedMemoryFolder::Restore() {
  if (hidden_.empty() || mkdir(path_.c_str(), 0700) != 0 || !Mark().ok()) return;
  for (const std::string& name : hidden_) {
    const std::string path = absl::StrCat(path_, "/", name);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
  }
}

SharedMemoryFolder::~SharedMemoryFolder() { Hide(); }

}  // namespace gyre
