// checkpoint_parts.h: how the rank that publishes a checkpoint learns that every rank has written
// its part: in numbers that training sums over ranks anyway, so that nobody waits.
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

class CheckpointParts {
 public:
  // files: those of which each rank writes a part (checkpoint.h, PartName).  None: rank 0 writes
  // everything, and there is nothing to tell.
  CheckpointParts(std::vector<std::string> files, int rank, int ranks);

  // This rank has written its part of files[file].
  void Wrote(size_t file, uint32_t crc32);
  // Appends what this rank tells: as many numbers on each rank, none once all have told all.
  void AppendTo(std::vector<double>& numbers) const;
  // The same, summed over ranks.
  void Take(std::span<const double> sums);
  // Whether Take has been given all; the same on all ranks after the same sum.
  bool complete() const;

  // Blocks until this rank has written its parts, or for so long.
  void AwaitOwn(std::chrono::milliseconds most);
  // Blocks until this is complete, true, or for so long.
  bool Await(std::chrono::milliseconds most);
  // Nobody will tell any more.
  void GiveUp();
  bool given_up() const;
  // Of all ranks.
  std::vector<std::string> names() const;
  // By name.  Precondition: complete.
  std::map<std::string, uint32_t> crc32_of_file() const;

 private:
  bool Complete() const;

  const std::vector<std::string> files_;
  const int rank_, ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // By rank, then file: 0, or 1 + its crc32, which F64 has exactly.
  std::vector<double> written_, told_;
  bool given_up_ = false;
};

}  // namespace gyre
