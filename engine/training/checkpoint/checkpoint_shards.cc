#include "engine/training/checkpoint/checkpoint_shards.h"

#include <algorithm>

#include "engine/runtime/check.h"

namespace gyre {

CheckpointShards::CheckpointShards(const std::vector<std::vector<std::string>>& files_of_rank,
                                   int rank, bool copied)
    : ranks_(static_cast<int>(files_of_rank.size())), rank_(rank), copied_(copied) {
  for (const auto& files : files_of_rank) names_.insert(names_.end(), files.begin(), files.end());
  if (ranks_ > 0) own_files_ = files_of_rank[static_cast<size_t>(rank)].size();
  own_.resize(names_.size() + (copied ? 2 : 0));
  sums_.resize(own_.size());
}

void CheckpointShards::Wrote(const std::string& file, uint32_t crc32) {
  std::lock_guard lock(mutex_);
  const auto name = std::ranges::find(names_, file);
  GYRE_CHECK(name != names_.end());
  own_[static_cast<size_t>(name - names_.begin())] = 1.0 + crc32;
  changed_.notify_all();
}

void CheckpointShards::Reached(CheckpointStage stage) {
  std::lock_guard lock(mutex_);
  GYRE_CHECK(copied_ && stage != kWritten);
  own_[names_.size() + stage - kCopied] = 1;
  changed_.notify_all();
}

void CheckpointShards::MailCame() {
  std::lock_guard lock(mutex_);
  mail_came_ = true;
  changed_.notify_all();
}

bool CheckpointShards::AwaitMail(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [this] { return mail_came_; });
}

void CheckpointShards::AppendTo(std::vector<double>& numbers) const {
  std::lock_guard lock(mutex_);
  if (ReachedByAll(copied_ ? kPublished : kWritten)) return;
  numbers.insert(numbers.end(), own_.begin(), own_.end());
}

void CheckpointShards::Take(std::span<const double> sums) {
  if (sums.empty()) return;
  std::lock_guard lock(mutex_);
  GYRE_CHECK(sums.size() == sums_.size());
  std::ranges::copy(sums, sums_.begin());
  changed_.notify_all();
}

bool CheckpointShards::reached(CheckpointStage stage) const {
  std::lock_guard lock(mutex_);
  return ReachedByAll(stage);
}

size_t CheckpointShards::FilesIn(const std::vector<double>& numbers) const {
  return static_cast<size_t>(std::ranges::count_if(std::span(numbers).first(names_.size()),
                                                   [](double n) { return n != 0; }));
}

bool CheckpointShards::ReachedByAll(CheckpointStage stage) const {
  if (stage == kWritten) return FilesIn(sums_) == names_.size();
  return copied_ && sums_[names_.size() + stage - kCopied] == (stage == kCopied ? ranks_ : 1);
}

bool CheckpointShards::ReachedByThis(CheckpointStage stage) const {
  if (stage == kWritten) return FilesIn(own_) == own_files_;
  return own_[names_.size() + stage - kCopied] == 1 || (stage == kPublished && rank_ != 0);
}

void CheckpointShards::AwaitOwn(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  const CheckpointStage next = !ReachedByAll(kWritten) || !copied_ ? kWritten
                               : !ReachedByAll(kCopied)            ? kCopied
                                                                   : kPublished;
  changed_.wait_for(lock, most, [&] { return ReachedByThis(next); });
}

bool CheckpointShards::Await(CheckpointStage stage, std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [&] { return ReachedByAll(stage); });
}

std::map<std::string, uint32_t> CheckpointShards::crc32_of_file() const {
  std::lock_guard lock(mutex_);
  GYRE_CHECK(ReachedByAll(kWritten));
  std::map<std::string, uint32_t> crc32s;
  for (size_t i = 0; i < names_.size(); ++i) {
    crc32s[names_[i]] = static_cast<uint32_t>(sums_[i] - 1);
  }
  return crc32s;
}

}  // namespace gyre
