#include "engine/training/checkpoint/checkpoint_folders.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/training/checkpoint/checkpoint.h"

namespace gyre {

absl::StatusOr<CheckpointFolders> CheckpointFolders::Meet(ProcessGroup& communication,
                                                          const std::string& folder,
                                                          const std::string& token) {
  const int me = communication.rank(), ranks = communication.size();
  std::error_code harmless;
  const auto mark_of = [&](int rank) {
    return absl::StrCat(folder, "/.mark", rank, ".tmp-", token);
  };
  absl::Status marked = CheckpointStore(folder).MakeFolder();
  if (marked.ok()) marked = WriteFileAtomically(mark_of(me), "mark");
  absl::Status told = communication.Barrier();
  // 1 + the lowest rank whose mark this one sees; 0: it has left none.
  std::vector<double> first(static_cast<size_t>(ranks));
  for (int rank = 0; told.ok() && marked.ok() && rank <= me && first[me] == 0; ++rank) {
    if (rank == me || std::filesystem::exists(mark_of(rank), harmless)) first[me] = rank + 1;
  }
  if (told.ok()) told = communication.Sum("the folders of checkpoints", first);
  std::filesystem::remove(mark_of(me), harmless);
  // A rank that goes on may end the job, and leave another's mark behind.
  if (told.ok()) told = communication.Barrier();
  RETURN_IF_ERROR(told);
  const auto unmarked = std::ranges::find(first, 0.0);
  if (unmarked != first.end()) {
    std::filesystem::remove(folder, harmless);  // unless it is not empty
    RETURN_IF_ERROR(marked);
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", unmarked - first.begin(), " cannot write in its ", folder));
  }
  std::vector<int> first_of_rank;
  for (const double rank : first) first_of_rank.push_back(static_cast<int>(rank) - 1);
  return CheckpointFolders(std::move(first_of_rank));
}

CheckpointFolders::CheckpointFolders(std::vector<int> first_of_rank)
    : first_of_rank_(std::move(first_of_rank)) {
  for (int rank = 0; rank < static_cast<int>(first_of_rank_.size()); ++rank) {
    const int first = first_of_rank_[static_cast<size_t>(rank)];
    const auto folder = std::ranges::find_if(
        folders_, [&](const std::vector<int>& ranks) { return ranks.front() == first; });
    if (folder == folders_.end()) {
      // Of one that sees a mark that its owner does not see as its own folder's: a folder, too.
      first_of_rank_[static_cast<size_t>(rank)] = rank;
      folders_.push_back({rank});
    } else {
      folder->push_back(rank);
    }
  }
}

int CheckpointFolders::NeighbourOf(int rank) const {
  GYRE_CHECK(several());
  for (size_t i = 0; i < folders_.size(); ++i) {
    const auto at = std::ranges::find(folders_[i], rank);
    if (at == folders_[i].end()) continue;
    const std::vector<int>& next = folders_[(i + 1) % folders_.size()];
    return next[static_cast<size_t>(at - folders_[i].begin()) % next.size()];
  }
  GYRE_CHECK(false);
}

std::vector<int> CheckpointFolders::KeptBy(int rank) const {
  std::vector<int> kept;
  for (int other = 0; other < static_cast<int>(first_of_rank_.size()); ++other) {
    if (NeighbourOf(other) == rank) kept.push_back(other);
  }
  return kept;
}

// In round r the k-th of the chain sends segment r - k to the next.
absl::Status PassBytes(ProcessGroup& communication, const std::string& what,
                       std::span<const int> chain, uint64_t bytes,
                       const std::function<absl::Status(std::string&)>& source,
                       const FileSink& sink) {
  // What a rank holds of what it passes on; a link is busy for far longer than a round starts.
  constexpr uint64_t kSegmentBytes = 8 << 20;
  const auto at = std::ranges::find(chain, communication.rank());
  const int64_t k = at - chain.begin();
  const bool sends = at != chain.end() && at + 1 != chain.end();
  const bool receives = at != chain.end() && k > 0;
  const auto segments = static_cast<int64_t>((bytes + kSegmentBytes - 1) / kSegmentBytes);
  const auto is_segment = [&](int64_t segment) { return segment >= 0 && segment < segments; };
  const std::string label = absl::StrCat("a segment of ", what);
  std::string held;
  for (int64_t round = 0; round < segments + static_cast<int64_t>(chain.size()) - 2; ++round) {
    if (sends && k == 0 && is_segment(round)) {
      held.resize(std::min(kSegmentBytes, bytes - static_cast<uint64_t>(round) * kSegmentBytes));
      RETURN_IF_ERROR(source(held));
    }
    Mail mail;
    if (sends && is_segment(round - k)) mail.outgoing.push_back({*(at + 1), held});
    if (receives && is_segment(round - k + 1)) mail.incoming.push_back({*(at - 1)});
    RETURN_IF_ERROR(communication.Wait(communication.Submit(label, &mail)).status());
    if (mail.incoming.empty()) continue;
    held = std::move(mail.incoming[0].bytes);
    RETURN_IF_ERROR(sink(held));
  }
  return absl::OkStatus();
}

}  // namespace gyre
