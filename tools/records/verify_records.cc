#include "tools/records/verify_records.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/records/record_shard.h"
#include "engine/data/sets/dataset.h"
#include "engine/data/sets/series.h"
#include "engine/runtime/check.h"
#include "engine/runtime/count_text.h"
#include "tools/command_line/progress.h"
#include "tools/records/shard_threads.h"

namespace gyre {
namespace {

// The shards of a set that are there.
struct FoundSet {
  RecordSet set;
  std::vector<int64_t> numbers;
  int64_t samples = 0;
  uint64_t bytes = 0;
};

class Verifier {
 public:
  void Open(const std::string& path) {
    ShardHeader header;
    auto shard = RecordShard::Open(path, header);
    if (!shard.ok()) return Fault(shard.status());
    FoundSet& found = sets_[header.set().SerializeAsString()];
    found.set = header.set();
    found.numbers.push_back(header.shard());
    found.samples += shard->size();
    for (int64_t i = 0; i < shard->size(); ++i) found.bytes += shard->bytes(i);
    samples_ += shard->size();
    layouts_.push_back(*RecordLayout::Of(header.set()));
    shards_.push_back(*std::move(shard));
  }

  // Each sample of shard `number`.
  absl::Status Read(size_t number, Progress& progress) {
    const RecordShard& shard = shards_[number];
    ReusedBytes memory;
    for (int64_t i = 0; i < shard.size(); ++i) {
      const size_t bytes = shard.bytes(i);
      std::byte* const sample = memory.Grow(bytes);
      absl::Status status = shard.Read(i, sample);
      // The sizes of one array tell those of all.
      if (status.ok()) {
        const auto found = layouts_[number].Find({reinterpret_cast<const char*>(sample), bytes}, 0);
        if (!found.ok()) status = shard.Error(i, found.status().message());
      }
      if (!status.ok()) Fault(status);
      progress.Add(1, bytes);
    }
    return absl::OkStatus();
  }

  int64_t shards() const { return static_cast<int64_t>(shards_.size()); }
  int64_t samples() const { return samples_; }

  VerifiedRecords Result(const std::string& folder) {
    VerifiedRecords result;
    std::map<std::string, std::vector<std::string>> packings;  // a shard of each, by set
    for (auto& [text, found] : sets_) {
      packings[found.set.name()].push_back(ShardName(found.set, found.numbers[0]));
      std::ranges::sort(found.numbers);
      int64_t missing = 0;
      std::string first;
      for (int64_t i = 0; i < found.set.shards(); ++i) {
        if (std::ranges::binary_search(found.numbers, i)) continue;
        if (missing++ == 0) first = ShardName(found.set, i);
      }
      if (missing > 0) {
        faults_.push_back(absl::StrFormat("%s: %d of %s of \"%s\" missing: %s%s", folder, missing,
                                          Counted(found.set.shards(), "shard"), found.set.name(),
                                          first, missing > 1 ? ", ..." : ""));
      } else if (found.samples != found.set.samples()) {
        faults_.push_back(absl::StrFormat("%s: expected %d samples in \"%s\", got %d", folder,
                                          found.set.samples(), found.set.name(), found.samples));
      }
      result.sets.push_back(absl::StrFormat(
          "%s: %s in %s, %.1f MB", found.set.name(), Counted(found.samples, "sample"),
          Counted(static_cast<int64_t>(found.numbers.size()), "shard"),
          static_cast<double>(found.bytes) / 1e6));
    }
    for (auto& [name, shards] : packings) {
      if (shards.size() == 1) continue;
      std::ranges::sort(shards);
      faults_.push_back(absl::StrFormat(
          "%s: expected \"%s\" of one packing, got %d: %s; remove the shards of the others", folder,
          name, shards.size(), absl::StrJoin(shards, ", ")));
    }
    std::ranges::sort(result.sets);
    std::ranges::sort(faults_);
    result.faults = std::move(faults_);
    return result;
  }

 private:
  void Fault(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    faults_.emplace_back(status.message());
  }

  std::map<std::string, FoundSet> sets_;  // by what their headers say
  std::vector<RecordShard> shards_;
  std::vector<RecordLayout> layouts_;
  int64_t samples_ = 0;
  std::mutex mutex_;  // of faults_
  std::vector<std::string> faults_;
};

}  // namespace

absl::StatusOr<VerifiedRecords> VerifyRecords(const std::string& folder, int threads) {
  ASSIGN_OR_RETURN(const Listing listing, List(folder, {".rec"}));
  if (listing.paths.empty()) {
    return absl::NotFoundError(absl::StrCat(folder, ": no shard in it, such as train-*.rec"));
  }
  Verifier verifier;
  for (const std::string& path : listing.paths) verifier.Open(path);
  Progress progress("verified", verifier.samples());
  RETURN_IF_ERROR(ForEachShard(verifier.shards(), threads, [&](int64_t shard) {
    return verifier.Read(static_cast<size_t>(shard), progress);
  }));
  return verifier.Result(folder);
}

}  // namespace gyre
