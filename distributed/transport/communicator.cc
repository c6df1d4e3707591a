// communicator.cc: what is the same over every transport.

#include "distributed/transport/communicator.h"

#include <sys/prctl.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// In which another rank of the same host moves and adds a segment.  A pass is one poll, 0.1 to
// 0.2 us, or one of all messages of a parameter server, 20 us.
constexpr std::chrono::microseconds kSpinning{30};
// Then the shortest sleeps there are, 5 us each in truth.  Not sched_yield: it gives a whole time
// slice of milliseconds to a thread that computes, where a sleeper is woken in front of it.
constexpr std::chrono::microseconds kShortSleep{1}, kShortUntil{400};
// Late by 50 us is little against a wait this long, and polling then costs some 2 % of a core.
constexpr std::chrono::microseconds kLongSleep{50};

// Lets the calling thread sleep for microseconds: Linux rounds a sleep up by 50 us by default.
void AllowShortSleeps() {
  thread_local const int done = prctl(PR_SET_TIMERSLACK, 1000UL /* ns */, 0UL, 0UL, 0UL);
  static_cast<void>(done);
}

}  // namespace

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

void Backoff::Pause() {
  const auto now = std::chrono::steady_clock::now();
  if (!since_) since_ = now;
  const auto waited = now - *since_;
  if (waited < kSpinning) return;
  AllowShortSleeps();
  std::this_thread::sleep_for(waited < kShortUntil ? kShortSleep : kLongSleep);
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
  for (Backoff backoff;; backoff.Pause()) {
    ASSIGN_OR_RETURN(const bool done, communicator.Test(request));
    if (done) return absl::OkStatus();
  }
}

void Keep(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace gyre
