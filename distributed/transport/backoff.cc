#include "distributed/transport/backoff.h"

#include <sys/prctl.h>

#include <chrono>
#include <thread>

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

void Backoff::Pause() {
  const auto now = std::chrono::steady_clock::now();
  if (!since_) since_ = now;
  const auto waited = now - *since_;
  if (waited < kSpinning) return;
  AllowShortSleeps();
  if (waited < kShortUntil) {
    std::this_thread::sleep_for(kShortSleep);
  } else {
    std::this_thread::sleep_for(kLongSleep);
  }
}

}  // namespace gyre
