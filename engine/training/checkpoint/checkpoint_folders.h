// checkpoint_folders.h: which ranks share a folder of checkpoints.  Hosts with a shared file system
// have one folder.  A host that uses its own disk has a folder of its own.
// With several folders, each file is in the folder of its writer and in that of one neighbour.  So
// the loss of one host loses no file.  A value, the same on all ranks.  PassBytes brings a file to
// the folders that lack it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"
#include "engine/data/files/atomic_file.h"

namespace gyre {

class CheckpointFolders {
 public:
  // Makes `folder`, leaves a mark in it, and looks for the marks of other ranks.  The marks' names
  // contain `token`, which is the same on all ranks.  Blocks until all ranks have called it.
  // Errors: those of Sum, and on all ranks if one cannot write.
  static absl::StatusOr<CheckpointFolders> Meet(ProcessGroup& communication,
                                                const std::string& folder,
                                                const std::string& token);
  // first_of_rank[r] is the lowest rank that shares the folder of r.
  explicit CheckpointFolders(std::vector<int> first_of_rank);

  bool several() const { return folders_.size() > 1; }
  // The ranks of each folder, in order.  The first of them publishes there.
  const std::vector<std::vector<int>>& folders() const { return folders_; }
  bool Publishes(int rank) const { return first_of_rank_[static_cast<size_t>(rank)] == rank; }
  // The rank of the next folder that stores a copy of the files of `rank`.  The ranks of the two
  // folders are paired in order.  Precondition: several().
  int NeighbourOf(int rank) const;
  // The ranks whose files `rank` stores a copy of.
  std::vector<int> KeptBy(int rank) const;

 private:
  std::vector<int> first_of_rank_;
  std::vector<std::vector<int>> folders_;
};

// Sends `bytes` bytes from the first rank of `chain` to each of the others, once, in segments.  A
// rank passes on one segment while it receives the next.  Every rank calls it, on its communication
// thread.  Blocks.  Errors: those of the process group, source and sink.
//   source  called on the first rank: fills the string, at its size, with the next bytes
//   sink    called on the other ranks of the chain, with bytes in order
absl::Status PassBytes(ProcessGroup& communication, const std::string& what,
                       std::span<const int> chain, uint64_t bytes,
                       const std::function<absl::Status(std::string&)>& source,
                       const FileSink& sink);

}  // namespace gyre
