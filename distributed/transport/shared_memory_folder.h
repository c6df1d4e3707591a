// shared_memory_folder.h: a folder for this process's shared memory, where no other job's can be.
//
// Open MPI names its segments in /dev/shm by host, user and 16 bits of mpirun's process id, and
// opens them without O_EXCL: two jobs in two pid namespaces (containers, sandboxes) that share
// /dev/shm can meet in one, and hang, crash or mix their gradients.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gyre {

class SharedMemoryFolder {
 public:
  // Makes `parent`/gyre.XXXXXX, for this user alone.  Removes first those that killed processes of
  // this user have left there.  Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<SharedMemoryFolder>> Create(const std::string& parent);
  // Removes it and what it holds; memory that is mapped stays.
  ~SharedMemoryFolder();

  const std::string& path() const { return path_; }

 private:
  SharedMemoryFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;  // the open folder, locked as long as this process lives
};

}  // namespace gyre
