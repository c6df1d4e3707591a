// checkpoint_copies.h: of one checkpoint, what a rank has written on its way to its neighbour, and
// what others have on its way to it, while training goes on.
//
// One a checkpoint, on each rank.  Of two threads: the one that writes, and the one that talks to
// other ranks.  Takes as much memory as the files of this rank and of those that it keeps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/checkpoint/checkpoint_folders.h"
#include "engine/training/checkpoint/checkpoint_shards.h"

namespace gyre {

class CheckpointCopies {
 public:
  // files_of_rank: what each writes.  folders: several.  All must outlive this.
  CheckpointCopies(const CheckpointFolders& folders,
                   std::vector<std::vector<std::string>> files_of_rank, ProcessGroup& communication,
                   CheckpointShards& parts);

  // The writing thread's: takes what this rank has written of step_N.  Before any rank's Send.
  absl::Status Pack(const CheckpointStore& store, int64_t step);
  // What others have sent, once parts_.AwaitMail has said that it is there, into step_N.  Errors:
  // those of writing; DataLoss for what has come with another checksum.
  absl::Status Write(CheckpointStore& store, int64_t step,
                     const std::map<std::string, uint32_t>& crc32_of_file);

  // The other's.  Begins, once; on all ranks at the same place among their operations.
  void Send();
  // Ends what has come to its end, never blocks; or blocks until it has.  Errors: the operation's.
  absl::Status Collect(bool wait);

 private:
  ProcessGroup& communication_;
  CheckpointShards& parts_;
  const std::vector<std::vector<std::string>> files_of_rank_;
  const int neighbour_;
  Mail mail_;
  std::string packed_;  // each file's length, then the files
  std::optional<ProcessGroup::Ticket> ticket_;
  bool sent_ = false;
};

}  // namespace gyre
