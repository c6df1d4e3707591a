#include "engine/data/files/private_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kFolderMode = 0700, kFileMode = 0600;
constexpr char kMark[] = ".gyre_temporary";
constexpr std::string_view kMarkText = "a temporary folder of a run of Gyre\n";

absl::Status Failed(const std::string& path) { return absl::ErrnoToStatus(errno, path); }

bool IsOurs(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

// Whether it was not there.  A umask can take bits away even from the owner, hence the chmod.
absl::StatusOr<bool> MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), kFolderMode) == 0) {
    return chmod(path.c_str(), kFolderMode) == 0 ? absl::StatusOr<bool>(true) : Failed(path);
  }
  struct stat status;
  if (errno != EEXIST || lstat(path.c_str(), &status) != 0) return Failed(path);
  if (S_ISDIR(status.st_mode) && IsOurs(status)) return false;
  return absl::PermissionDeniedError(
      absl::StrCat(path, ": expected a folder of this user alone, got something else"));
}

absl::StatusOr<int> CreateFile(const std::string& path) {
  const int file =
      open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode);
  if (file < 0) return Failed(path);
  if (fchmod(file, kFileMode) == 0) return file;
  const absl::Status status = Failed(path);
  close(file);
  return status;
}

// Whether `path` is a folder as Make has made it whose maker is gone.
bool IsAbandoned(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || !IsOurs(status))
    return false;
  const std::string mark = path + "/" + kMark;
  const int file = open(mark.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  char text[2 * kMarkText.size()];
  const ssize_t size = read(file, text, sizeof(text));
  const bool abandoned = size == static_cast<ssize_t>(kMarkText.size()) &&
                         std::string_view(text, kMarkText.size()) == kMarkText &&
                         flock(file, LOCK_EX | LOCK_NB) == 0;
  close(file);
  return abandoned;
}

void RemoveAbandoned(const std::string& parent, const std::string& prefix) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(prefix) || !IsAbandoned(path)) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

}  // namespace

absl::StatusOr<PrivateFolder> PrivateFolder::Make(const std::string& parent,
                                                  const std::string& prefix,
                                                  const std::string& name) {
  PrivateFolder folder((fs::path(parent) / absl::StrCat(prefix, "_", name)).string());
  ASSIGN_OR_RETURN(const bool made, MakeFolder(folder.path_));
  if (!made) return folder;
  // The text comes once the lock is held: without it, a mark is nobody's.
  ASSIGN_OR_RETURN(folder.mark_, CreateFile(folder.path_ + "/" + kMark));
  if (flock(folder.mark_, LOCK_EX) != 0 ||
      write(folder.mark_, kMarkText.data(), kMarkText.size()) !=
          static_cast<ssize_t>(kMarkText.size())) {
    return Failed(folder.path_);
  }
  RemoveAbandoned(parent, prefix + "_");
  return folder;
}

PrivateFolder::~PrivateFolder() {
  if (mark_ < 0) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(mark_);
}

absl::StatusOr<int> PrivateFolder::Create(const std::string& file) const {
  fs::path at = path_;
  for (const fs::path& part : fs::path(file).parent_path()) {
    at /= part;
    RETURN_IF_ERROR(MakeFolder(at).status());
  }
  return CreateFile((fs::path(path_) / file).string());
}

}  // namespace gyre
