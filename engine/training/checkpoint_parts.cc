#include "engine/training/checkpoint_parts.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/check.h"
#include "engine/training/checkpoint.h"

namespace gyre {

CheckpointParts::CheckpointParts(std::vector<std::string> files, int rank, int ranks)
    : files_(std::move(files)),
      rank_(rank),
      ranks_(ranks),
      written_(files_.size() * static_cast<size_t>(ranks)),
      told_(written_.size()) {}

void CheckpointParts::Wrote(size_t file, uint32_t crc32) {
  std::lock_guard lock(mutex_);
  written_[static_cast<size_t>(rank_) * files_.size() + file] = 1.0 + crc32;
  changed_.notify_all();
}

void CheckpointParts::AppendTo(std::vector<double>& numbers) const {
  std::lock_guard lock(mutex_);
  if (!Complete()) numbers.insert(numbers.end(), written_.begin(), written_.end());
}

void CheckpointParts::Take(std::span<const double> sums) {
  if (sums.empty()) return;
  std::lock_guard lock(mutex_);
  GYRE_CHECK(sums.size() == told_.size());
  std::ranges::copy(sums, told_.begin());
  changed_.notify_all();
}

bool CheckpointParts::complete() const {
  std::lock_guard lock(mutex_);
  return Complete();
}

bool CheckpointParts::Complete() const { return std::ranges::count(told_, 0.0) == 0; }

void CheckpointParts::AwaitOwn(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  const auto own =
      std::span(written_).subspan(static_cast<size_t>(rank_) * files_.size(), files_.size());
  changed_.wait_for(lock, most, [&] { return std::ranges::count(own, 0.0) == 0; });
}

bool CheckpointParts::Await(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [this] { return Complete(); });
}

void CheckpointParts::GiveUp() {
  std::lock_guard lock(mutex_);
  given_up_ = true;
}

bool CheckpointParts::given_up() const {
  std::lock_guard lock(mutex_);
  return given_up_;
}

std::vector<std::string> CheckpointParts::names() const {
  std::vector<std::string> names;
  for (const std::string& file : files_) {
    for (int rank = 0; rank < ranks_; ++rank) names.push_back(PartName(file, rank, ranks_));
  }
  return names;
}

std::map<std::string, uint32_t> CheckpointParts::crc32_of_file() const {
  std::lock_guard lock(mutex_);
  GYRE_CHECK(Complete());
  std::map<std::string, uint32_t> crc32s;
  for (int rank = 0; rank < ranks_; ++rank) {
    for (size_t file = 0; file < files_.size(); ++file) {
      const double told = told_[static_cast<size_t>(rank) * files_.size() + file];
      crc32s[PartName(files_[file], rank, ranks_)] = static_cast<uint32_t>(told - 1);
    }
  }
  return crc32s;
}

}  // namespace gyre
