#include "engine/training/checkpoint/checkpoint_shards.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {

CheckpointShards::CheckpointShards(std::vector<std::vector<std::string>> files_of_rank,
                                   const CheckpointFolders* folders, ProcessGroup& communication)
    : files_of_rank_(std::move(files_of_rank)), communication_(communication) {
  for (const auto& files : files_of_rank_) names_.insert(names_.end(), files.begin(), files.end());
  own_.resize(names_.size() + (folders ? 2 : 0));
  sums_.resize(own_.size());
  if (folders == nullptr) return;
  mail_.outgoing = {{folders->NeighbourOf(communication.rank()), ""}};
  for (const int rank : folders->KeptBy(communication.rank())) mail_.incoming.push_back({rank});
}

absl::Status CheckpointShards::Pack(const CheckpointStore& store, int64_t step) {
  const auto& files = files_of_rank_[static_cast<size_t>(communication_.rank())];
  packed_.assign(files.size() * sizeof(uint64_t), '\0');
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t begin = packed_.size();
    RETURN_IF_ERROR(store.AppendWritten(step, files[i], packed_));
    const uint64_t length = packed_.size() - begin;
    std::memcpy(packed_.data() + i * sizeof(length), &length, sizeof(length));
  }
  mail_.outgoing[0].bytes = packed_;
  return absl::OkStatus();
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
  GYRE_CHECK(copied() && stage != kWritten);
  own_[names_.size() + stage - kCopied] = 1;
  changed_.notify_all();
}

bool CheckpointShards::AwaitCopies(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [this] { return mail_came_; });
}

absl::Status CheckpointShards::WriteCopies(CheckpointStore& store, int64_t step) {
  const std::map<std::string, uint32_t> crc32s = crc32_of_file();
  for (auto& [from, bytes, into] : mail_.incoming) {
    const auto& files = files_of_rank_[static_cast<size_t>(from)];
    size_t at = files.size() * sizeof(uint64_t);
    for (size_t i = 0; i < files.size(); ++i) {
      uint64_t length = 0;
      if (at <= bytes.size())
        std::memcpy(&length, bytes.data() + i * sizeof(length), sizeof(length));
      if (at > bytes.size() || length > bytes.size() - at) {
        return absl::DataLossError(absl::StrCat("rank ", from, " has sent ", bytes.size(),
                                                " bytes, which do not hold its ", files[i]));
      }
      RETURN_IF_ERROR(store.WriteCopy(step, files[i], std::string_view(bytes).substr(at, length),
                                      crc32s.at(files[i])));
      at += length;
    }
    bytes = std::string();  // there may be little room for it
  }
  return absl::OkStatus();
}

void CheckpointShards::AppendTo(std::vector<double>& numbers) {
  // An error of it is that of every operation.
  if (ticket_ && communication_.Done(*ticket_).value_or(false)) FinishExchange().IgnoreError();
  if (complete()) return;
  std::lock_guard lock(mutex_);
  numbers.insert(numbers.end(), own_.begin(), own_.end());
}

void CheckpointShards::Take(std::span<const double> sums) {
  if (sums.empty()) return;
  std::unique_lock lock(mutex_);
  GYRE_CHECK(sums.size() == sums_.size());
  std::ranges::copy(sums, sums_.begin());
  changed_.notify_all();
  if (!copied() || !ReachedByAll(kWritten) || std::exchange(sent_, true)) return;
  lock.unlock();
  ticket_ = communication_.Submit("the parts of a checkpoint, to a neighbour", &mail_);
}

absl::Status CheckpointShards::FinishExchange() {
  if (!ticket_) return absl::OkStatus();
  RETURN_IF_ERROR(communication_.Wait(*std::exchange(ticket_, std::nullopt)).status());
  packed_ = std::string();
  std::lock_guard lock(mutex_);
  mail_came_ = true;
  changed_.notify_all();
  return absl::OkStatus();
}

bool CheckpointShards::complete() const {
  std::lock_guard lock(mutex_);
  return ReachedByAll(copied() ? kPublished : kWritten);
}

size_t CheckpointShards::FilesIn(const std::vector<double>& numbers) const {
  return static_cast<size_t>(std::ranges::count_if(std::span(numbers).first(names_.size()),
                                                   [](double n) { return n != 0; }));
}

bool CheckpointShards::ReachedByAll(CheckpointStage stage) const {
  if (stage == kWritten) return FilesIn(sums_) == names_.size();
  const double all = stage == kCopied ? communication_.size() : 1;
  return copied() && sums_[names_.size() + stage - kCopied] == all;
}

bool CheckpointShards::ReachedByThis(CheckpointStage stage) const {
  const int rank = communication_.rank();
  if (stage == kWritten) return FilesIn(own_) == files_of_rank_[static_cast<size_t>(rank)].size();
  return own_[names_.size() + stage - kCopied] == 1 || (stage == kPublished && rank != 0);
}

void CheckpointShards::AwaitOwn(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  const CheckpointStage next = !ReachedByAll(kWritten) || !copied() ? kWritten
                               : !ReachedByAll(kCopied)             ? kCopied
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
