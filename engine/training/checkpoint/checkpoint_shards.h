// checkpoint_shards.h: tells each rank how far all ranks are with a checkpoint.  The numbers travel
// in sums that training makes anyway, so that nobody waits.
// One object a checkpoint and rank.  Thread-safe.
#pragma once

#include <atomic>
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
  // The stages of a checkpoint, in order.  Only a copied one has the last two.
  enum CheckpointStage : uint8_t {
    kWritten,    // every rank has written its files
    kCopied,     // every rank has also stored its copies of others' files
    kPublished,  // rank 0 has published the checkpoint
  };

  //   files_of_rank  by rank, the files that it writes; empty if rank 0 writes all
  //   copied         neighbours store copies
  CheckpointShards(const std::vector<std::vector<std::string>>& files_of_rank, int rank,
                   bool copied);

  void Wrote(const std::string& file, uint32_t crc32);
  // Records this rank's stage: kCopied, or on rank 0 kPublished.
  void Reached(CheckpointStage stage);
  // MailCame records that the exchange of CheckpointCopies is complete.  AwaitMail blocks until
  // then, at most so long, and returns whether it is.
  void MailCame();
  bool AwaitMail(std::chrono::milliseconds most);

  // Appends this rank's numbers, the same count on each rank and none once complete().  Take
  // receives their sums over ranks.
  void AppendTo(std::vector<double>& numbers) const;
  void Take(std::span<const double> sums);
  // Whether all ranks are at this stage, by the sums that Take received.
  bool reached(CheckpointStage stage) const;
  bool complete() const { return reached(copied_ ? kPublished : kWritten); }

  // Blocks until this rank is at the next stage, at most so long.
  void AwaitOwn(std::chrono::milliseconds most);
  // Blocks until all ranks are at this stage, at most so long.  Returns whether they are.
  bool Await(CheckpointStage stage, std::chrono::milliseconds most);
  // Records that no further sums will come.
  void GiveUp() { given_up_ = true; }
  bool given_up() const { return given_up_; }
  const std::vector<std::string>& names() const { return names_; }
  // Precondition: reached(kWritten).
  std::map<std::string, uint32_t> crc32_of_file() const;

 private:
  // With mutex_ held.  FilesIn: the number of written files in own_ or sums_.
  size_t FilesIn(const std::vector<double>& numbers) const;
  bool ReachedByAll(CheckpointStage stage) const;
  bool ReachedByThis(CheckpointStage stage) const;

  std::vector<std::string> names_;  // by rank
  const int ranks_, rank_;
  const bool copied_;
  size_t own_files_ = 0;  // of this rank
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // For each name 0, or 1 + its CRC-32, which F64 holds exactly.  If parts are copied, the numbers
  // of ranks at kCopied and at kPublished follow.
  std::vector<double> own_, sums_;
  bool mail_came_ = false;
  std::atomic<bool> given_up_ = false;
};

}  // namespace gyre
