// folder_lock.h: keeps a second process from writing into a folder in use.  The kernel drops the
// lock with the process, however that ends.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace gyre {

class FolderLock {
 public:
  FolderLock() = default;  // of nothing
  // Errors: AlreadyExists if another process (or lock) holds the folder for longer than `patience`.
  // The ranks of a killed run outlive mpirun by seconds.  A file system without locks reports none.
  static absl::StatusOr<FolderLock> Take(
      const std::string& folder, std::chrono::milliseconds patience = std::chrono::seconds(10));
  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~FolderLock();

 private:
  int file_ = -1;
};

}  // namespace gyre
