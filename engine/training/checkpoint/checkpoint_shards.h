// checkpoint_shards.h: how the rank that publishes a checkpoint learns that every rank has written
// its part, and others their copies of it: in numbers that training sums over ranks anyway, so that
// nobody waits.
//
// One a checkpoint, on each rank.  Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace gyre {

class CheckpointShards {
 public:
  // What a checkpoint comes to, one after the other; the last two only where parts are copied.
  enum CheckpointStage : uint8_t {
    kWritten,    // every rank has written its files
    kCopied,     // and the files of others that it keeps
    kPublished,  // rank 0 has given the checkpoint its name
  };

  // files_of_rank: what each rank writes.  Nothing: rank 0 does everything, and there is nothing to
  // tell.
  CheckpointShards(const std::vector<std::vector<std::string>>& files_of_rank, int rank,
                   bool copied);

  bool copied() const { return copied_; }

  // This rank has written one of its files.
  void Wrote(const std::string& file, uint32_t crc32);
  // This rank is as far as that: kCopied, or rank 0 kPublished.
  void Reached(CheckpointStage stage);
  // What others have sent this rank, and it them, is there; until then, or for so long, AwaitMail
  // blocks.
  void MailCame();
  bool AwaitMail(std::chrono::milliseconds most);

  // Appends what this rank tells: as many numbers on each rank, none once this is complete.
  void AppendTo(std::vector<double>& numbers) const;
  // The same, summed over ranks.
  void Take(std::span<const double> sums);
  // Whether Take has been given that all are so far; the same on all ranks after the same sum.
  bool reached(CheckpointStage stage) const;
  bool complete() const { return reached(copied_ ? kPublished : kWritten); }

  // Blocks until this rank is as far as the next stage asks, or for so long.
  void AwaitOwn(std::chrono::milliseconds most);
  // Blocks until all are so far, true, or for so long.
  bool Await(CheckpointStage stage, std::chrono::milliseconds most);
  // Nobody will tell any more.
  void GiveUp();
  bool given_up() const;
  // Of all ranks.
  std::vector<std::string> names() const { return names_; }
  // By name.  Precondition: kWritten.
  std::map<std::string, uint32_t> crc32_of_file() const;

 private:
  // With mutex_ held.
  bool ReachedByAll(CheckpointStage stage) const;
  bool ReachedByThis(CheckpointStage stage) const;

  std::vector<std::string> names_;  // by rank
  const int ranks_, rank_;
  const bool copied_;
  size_t first_ = 0, last_ = 0;  // of this rank's names
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // By name: 0, or 1 + its crc32, which F64 has exactly.  Then, if parts are copied, how many ranks
  // are as far as the second stage, and the third.
  std::vector<double> own_, told_;
  bool mail_came_ = false, given_up_ = false;
};

}  // namespace gyre
