// communicator.cc: what is the same over every transport.

#include "distributed/transport/communicator.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "distributed/transport/backoff.h"
#include "engine/runtime/check.h"

namespace gyre {

int SilentRank(std::span<const int> waits_for, int rank) {
  int silent = rank;
  for (size_t links = 0; silent != kNobody && waits_for[silent] >= 0; ++links) {
    silent = links < waits_for.size() ? waits_for[silent] : kNobody;  // a circle
  }
  if (silent != kNobody) return silent;
  const auto unheard = std::ranges::find(waits_for, kUnheard);
  return unheard == waits_for.end() ? rank : static_cast<int>(unheard - waits_for.begin());
}

absl::Status Silence(std::span<const int> waits_for, int silent, const std::string& whom,
                     int64_t timeout_ms) {
  if (silent == kNobody) {
    return absl::UnavailableError(
        absl::StrCat("one rank has not come here for ", timeout_ms, " ms, and all answer"));
  }
  std::string text = absl::StrCat(whom, " has been silent for ", timeout_ms, " ms");
  if (waits_for[silent] != kUnheard) absl::StrAppend(&text, "; it answers, but has not come here");
  std::vector<int> others;
  for (int rank = 0; rank < static_cast<int>(waits_for.size()); ++rank) {
    if (waits_for[rank] == kUnheard && rank != silent) others.push_back(rank);
  }
  if (!others.empty()) {
    absl::StrAppend(&text, "; nor do these answer: ", absl::StrJoin(others, " "));
  }
  return absl::UnavailableError(text);
}

absl::Status PolledWait::Look(Communicator& communicator, int waiting_for) {
  constexpr int kPollsBetweenLooks = 64;
  if (++polls_ % kPollsBetweenLooks != 0) return absl::OkStatus();
  RETURN_IF_ERROR(communicator.Poke(waiting_for));
  const auto now = std::chrono::steady_clock::now();
  if (polls_ == kPollsBetweenLooks) {
    deadline_ = now + std::chrono::milliseconds(communicator.timeout_ms());
  }
  return now < deadline_ ? absl::OkStatus() : communicator.Overdue(waiting_for);
}

absl::Status WaitFor(Communicator& communicator, Request request) {
  Backoff backoff;
  for (;;) {
    ASSIGN_OR_RETURN(const bool done, communicator.Test(request));
    if (done) return absl::OkStatus();
    backoff.Pause();
  }
}

void Keep(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace gyre
