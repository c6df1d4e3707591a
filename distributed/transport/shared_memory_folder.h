// shared_memory_folder.h: a folder for this process's shared memory, where no other job's can be.
//
// Open MPI names its segments in /dev/shm by host, user and 16 bits of mpirun's process id, and
// opens them without O_EXCL: two jobs in two pid namespaces (containers, sandboxes) that share
// /dev/shm can meet in one, and hang, crash or mix their gradients.
//
// The folder has names only while processes start and end.  In between the segments are mapped and
// have none, so a killed job leaves nothing behind.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

class SharedMemoryFolder {
 public:
  // Makes `parent`/gyre.mpi-segments.XXXXXX, for this user alone, with a mark inside.  Removes
  // first the folders of that name, with the mark, that killed processes of this user have left
  // there. Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<SharedMemoryFolder>> Create(const std::string& parent);
  // Removes the folder and the files in it; memory that is mapped stays.
  ~SharedMemoryFolder();

  const std::string& path() const { return path_; }
  // Removes the folder and the files in it.  Any thread.
  void Remove() const;
  // Likewise, once all processes have opened the files that they use.
  void Hide();
  // Makes the folder again after Hide, with empty files: Open MPI prints an error if it cannot
  // remove its own.
  void Restore();

 private:
  explicit SharedMemoryFolder(std::string path) : path_(std::move(path)) {}
  absl::Status Mark();

  const std::string path_;
  int lock_ = -1;                    // the open mark, locked as long as this process lives
  std::vector<std::string> hidden_;  // names of files
};

}  // namespace gyre
