// checkpoint_copies.h: sends this rank's files of one checkpoint to its neighbour, and receives
// others' files, while training goes on.  One object a checkpoint and rank, with all these files in
// memory.  Used by the writing thread and the communication thread.
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
  // `files_of_rank` has by rank the files that it writes.  References must outlive this.
  // Precondition: folders.several().
  CheckpointCopies(const CheckpointFolders& folders,
                   std::vector<std::vector<std::string>> files_of_rank, ProcessGroup& communication,
                   CheckpointShards& shards);

  // Writing thread: reads this rank's files of step_N.  Precondition: no rank has called Send.
  absl::Status Pack(const CheckpointStore& store, int64_t step);
  // Writing thread: writes the received files into step_N.  Precondition: shards_.AwaitMail
  // returned true.  Errors: those of writing, and DataLoss for a wrong checksum.
  absl::Status Write(CheckpointStore& store, int64_t step,
                     const std::map<std::string, uint32_t>& crc32_of_file);

  // Communication thread: starts the exchange, once, in one order of operations on all ranks.
  void Send();
  // Communication thread: completes the exchange if it is finished, or with `wait` blocks until it
  // is.  Errors: those of the exchange.
  absl::Status Collect(bool wait);

 private:
  ProcessGroup& communication_;
  CheckpointShards& shards_;
  const std::vector<std::vector<std::string>> files_of_rank_;
  const int neighbour_;
  Mail mail_;
  std::string packed_;  // each file's length, then the files
  std::optional<ProcessGroup::Ticket> ticket_;
  bool sent_ = false;
};

}  // namespace gyre
