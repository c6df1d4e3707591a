#include "engine/data/files/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/machine.h"
#include "models/schema/near_file.h"

namespace gyre {

absl::StatusOr<FileReader> FileReader::Open(const std::string& path) {
  // O_NONBLOCK: a pipe without a writer would be waited for.
  FileReader file(path, open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (file.fd_ < 0 || fstat(file.fd_, &status) != 0) {
    return WithNearFile(absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path)), path);
  }
  if (S_ISDIR(status.st_mode)) {
    return absl::ErrnoToStatus(EISDIR, absl::StrCat("cannot read ", path));
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": it is a pipe or a device, expected a file"));
  }
  file.size_ = static_cast<uint64_t>(status.st_size);
  return file;
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

FileReader::~FileReader() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<size_t> FileReader::Read(void* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t count = read(fd_, static_cast<char*>(to) + done, bytes - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

absl::Status FileReader::ReadAll(void* to, size_t bytes) {
  ASSIGN_OR_RETURN(const size_t read, Read(to, bytes));
  if (read < bytes) return absl::DataLossError(path_ + ": is being changed");
  return absl::OkStatus();
}

absl::Status FileReader::ReadAt(uint64_t at, void* to, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count =
        pread(fd_, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    if (count == 0) return absl::DataLossError(path_ + ": is being changed");
    done += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

void FileReader::ReadSoon(uint64_t at, uint64_t bytes) const {
  // Linux reads no more for each call than a disk's readahead, which is 128 KiB at least.
  constexpr uint64_t kMost = uint64_t{128} << 10;
  for (uint64_t done = 0; done < bytes; done += kMost) {
    posix_fadvise(fd_, static_cast<off_t>(at + done),
                  static_cast<off_t>(std::min(kMost, bytes - done)), POSIX_FADV_WILLNEED);
  }
}

absl::Status FileReader::Seek(uint64_t at) {
  if (lseek(fd_, static_cast<off_t>(at), SEEK_SET) >= 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
}

absl::Status CheckFitsMemory(const std::string& path, uint64_t bytes) {
  // Less is not worth asking: the answer, from several files of /proc and /sys, takes some 50 us.
  constexpr uint64_t kFits = 64 << 20;
  if (bytes <= kFits) return absl::OkStatus();
  const uint64_t memory = MemoryBytes();
  if (bytes <= memory) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      path, ": its content takes ", bytes, " bytes, this process may use ", memory, " of memory"));
}

}  // namespace gyre
