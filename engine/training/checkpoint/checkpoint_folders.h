// checkpoint_folders.h: which ranks keep checkpoints in one folder: all of them on a file system
// that hosts share, those of a host on its own disk.
//
// Where folders are several, each file of a checkpoint is in that of the rank that writes it and in
// that of one neighbour, so that none is lost with one host.  A value, the same on all ranks.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"

namespace gyre {

class CheckpointFolders {
 public:
  // Ranks find out by marks that each leaves in its `folder`, which it makes.  Blocks until all
  // ranks have come here.  token: of the marks' names, the same on all ranks.  Errors, on all
  // ranks: one of them cannot write there; those of Sum.
  static absl::StatusOr<CheckpointFolders> Meet(ProcessGroup& communication,
                                                const std::string& folder,
                                                const std::string& token);
  // first_of_rank: the lowest rank whose folder is that rank's, by rank.
  explicit CheckpointFolders(std::vector<int> first_of_rank);

  bool several() const { return folders_.size() > 1; }
  // The ranks of each, in order; the first one publishes there.
  const std::vector<std::vector<int>>& folders() const { return folders_; }
  bool Publishes(int rank) const { return first_of_rank_[static_cast<size_t>(rank)] == rank; }
  // The rank of the next folder that keeps a copy of what `rank` writes; folders' ranks are paired
  // off in order.  Precondition: several().
  int NeighbourOf(int rank) const;
  // Whose files `rank` keeps.
  std::vector<int> KeptBy(int rank) const;

 private:
  std::vector<int> first_of_rank_;
  std::vector<std::vector<int>> folders_;
};

// Rank 0's text, on all.
absl::StatusOr<std::string> TextOfLeader(ProcessGroup& communication, std::string_view what,
                                         const std::string& text);

}  // namespace gyre
