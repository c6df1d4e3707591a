// checkpoint_shards.h: a checkpoint that several ranks write.  Tells each rank how far all ranks
// are with it.  The numbers travel in sums that training makes anyway, so that nobody waits.  With
// several folders it also sends this rank's files to its neighbour, and receives others' files,
// while training goes on.  All these files are in memory meanwhile.
// One object a checkpoint and rank.  Used by the writing thread and the communication thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/checkpoint/checkpoint_folders.h"

namespace gyre {

class CheckpointShards {
 public:
  // The stages of a checkpoint, in order.  Only a copied one has the last two.
  enum CheckpointStage : uint8_t {
    kWritten,    // every rank has written its files
    kCopied,     // every rank has also stored its copies of others' files
    kPublished,  // rank 0 has published the checkpoint
  };

  //   files_of_rank  by rank, the files that it writes; none of any rank if rank 0 writes all
  //   folders        several, in which neighbours store copies; or null
  // The process group must outlive this.
  CheckpointShards(std::vector<std::vector<std::string>> files_of_rank,
                   const CheckpointFolders* folders, ProcessGroup& communication);

  // Neighbours store copies.
  bool copied() const { return !mail_.outgoing.empty(); }
  const std::vector<std::string>& names() const { return names_; }

  // Writing thread: reads this rank's files of step_N for its neighbour.  Precondition: copied().
  // Comes before the AppendTo that tells of all files, as the exchange may follow it.
  absl::Status Pack(const CheckpointStore& store, int64_t step);
  void Wrote(const std::string& file, uint32_t crc32);
  // Records this rank's stage: kCopied, or on rank 0 kPublished.
  void Reached(CheckpointStage stage);
  // Writing thread: blocks until the exchange is complete, at most so long, and returns whether it
  // is.
  bool AwaitCopies(std::chrono::milliseconds most);
  // Writing thread: writes the received files into step_N.  Precondition: AwaitCopies returned
  // true.  Errors: those of writing, and DataLoss for a wrong checksum.
  absl::Status WriteCopies(CheckpointStore& store, int64_t step);
  // Blocks until all ranks are at this stage, at most so long.  Returns whether they are.
  bool Await(CheckpointStage stage, std::chrono::milliseconds most);
  // Precondition: all ranks have written.
  std::map<std::string, uint32_t> crc32_of_file() const;

  // Communication thread: appends this rank's numbers, the same count on each rank and none once
  // complete().  Ends an exchange that is over.  Take receives their sums over ranks, and starts
  // the exchange of copies once all ranks have written.
  void AppendTo(std::vector<double>& numbers);
  void Take(std::span<const double> sums);
  // Communication thread: blocks until the exchange is over, if one is under way.  Errors: its own.
  absl::Status FinishExchange();
  // Whether all ranks are at the last stage, by the sums that Take received.
  bool complete() const;
  // Blocks until this rank is at the next stage, at most so long.
  void AwaitOwn(std::chrono::milliseconds most);
  // Records that no further sums will come.
  void GiveUp() { given_up_ = true; }
  bool given_up() const { return given_up_; }

 private:
  // With mutex_ held.  FilesIn: the number of written files in own_ or sums_.
  size_t FilesIn(const std::vector<double>& numbers) const;
  bool ReachedByAll(CheckpointStage stage) const;
  bool ReachedByThis(CheckpointStage stage) const;

  const std::vector<std::vector<std::string>> files_of_rank_;
  ProcessGroup& communication_;
  std::vector<std::string> names_;  // by rank
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // For each name 0, or 1 + its CRC-32, which F64 holds exactly.  If parts are copied, the numbers
  // of ranks at kCopied and at kPublished follow.
  std::vector<double> own_, sums_;
  bool mail_came_ = false;
  std::atomic<bool> given_up_ = false;
  Mail mail_;
  std::string packed_;  // each file's length, then the files
  std::optional<ProcessGroup::Ticket> ticket_;
  bool sent_ = false;
};

}  // namespace gyre
