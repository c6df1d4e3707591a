// file_reader.h: a regular file being read piece by piece, from its beginning or another place.
// What is no regular file (a pipe would be waited for, a device read for ever) is refused before a
// byte of it is read, and a file's size is known before memory is made for it.  Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace gyre {

class FileReader {
 public:
  // Errors: NotFound, PermissionDenied and the like; InvalidArgument for a pipe or a device; all
  // name path.
  static absl::StatusOr<FileReader> Open(const std::string& path);
  FileReader(FileReader&& other) noexcept;
  ~FileReader();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // as it was when opened; 0 below /proc

  // Up to `bytes` bytes; fewer only where the file ends.
  absl::StatusOr<size_t> Read(void* to, size_t bytes);
  // So many, of a file that was as long when it was looked at.  Errors: DataLoss where it no longer
  // is.
  absl::Status ReadAll(void* to, size_t bytes);
  // The next Read begins at byte `at`.
  absl::Status Seek(uint64_t at);

 private:
  FileReader(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  uint64_t size_ = 0;
};

// ResourceExhausted if `bytes`, which the content of `path` would take in memory, are more than the
// process may use: a sparse file or a few bytes of gzip can claim any number.
absl::Status CheckFitsMemory(const std::string& path, uint64_t bytes);

}  // namespace gyre
