// shared_memory_folder.h: a folder for this process's shared memory of Open MPI, and no other's.
//
// Open MPI names its segments in /dev/shm by host, user and 16 bits of mpirun's process id, and
// opens them without O_EXCL.  Two jobs in two pid namespaces (containers, sandboxes) that share
// /dev/shm can thus meet in one segment, and hang, crash or mix their gradients.
//
// The folder has a name only while processes start and end.  In between the segments are mapped and
// have none, so a killed job leaves no files.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

class SharedMemoryFolder {
 public:
  // Makes `parent`/gyre.mpi-segments.XXXXXX for this user alone, with a mark inside.  Before that,
  // removes marked folders of this name that killed processes of this user have left.
  // Errors: Unavailable, with the text of the file system.
  static absl::StatusOr<std::unique_ptr<SharedMemoryFolder>> Create(const std::string& parent);
  // Hides the folder.  Mapped memory stays.
  ~SharedMemoryFolder();

  const std::string& path() const { return path_; }
  // Removes the folder and its files.  Any thread.
  void Remove() const;
  // Likewise, and remembers the files.  Precondition: all processes have opened those they use.
  void Hide();
  // After Hide, makes the folder again with empty files, because Open MPI prints an error if it
  // cannot remove its own.
  void Restore();

 private:
  explicit SharedMemoryFolder(std::string path) : path_(std::move(path)) {}
  absl::Status Mark();

  const std::string path_;
  int lock_ = -1;                    // the open mark, locked while this process lives
  std::vector<std::string> hidden_;  // names of files
};

}  // namespace gyre
