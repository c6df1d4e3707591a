// file_reader.h: reads a regular file in sequence, from any offset.  Pipes, which would block, and
// devices, which may never end, are refused unread.  The size is known before memory is allocated.
// Used by one thread, but ReadAt and ReadSoon by any.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace gyre {

class FileReader {
 public:
  // Errors, naming path: InvalidArgument for a pipe or a device, NotFound, PermissionDenied, ...
  static absl::StatusOr<FileReader> Open(const std::string& path);
  FileReader(FileReader&& other) noexcept;
  ~FileReader();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when opened.  0 below /proc

  // Reads up to `bytes` bytes, and fewer only at the file's end.
  absl::StatusOr<size_t> Read(void* to, size_t bytes);
  // Reads exactly `bytes` bytes.  Errors: DataLoss where the file has become too short.
  absl::Status ReadAll(void* to, size_t bytes);
  // Reads exactly `bytes` bytes from byte `at` on.  Errors: DataLoss beyond the file's end.
  absl::Status ReadAt(uint64_t at, void* to, size_t bytes) const;
  // Asks the system to read these bytes into its cache, and does not wait for them.
  void ReadSoon(uint64_t at, uint64_t bytes) const;
  // The next Read begins at byte `at`.
  absl::Status Seek(uint64_t at);

 private:
  FileReader(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  uint64_t size_ = 0;
};

// ResourceExhausted if `bytes`, the content of `path` in memory, exceed the memory that the process
// may use.  A sparse file or a few bytes of gzip can claim any number.
absl::Status CheckFitsMemory(const std::string& path, uint64_t bytes);

}  // namespace gyre
