// backoff.cc: see backoff.h.

#include "distributed/backoff.h"

#include <sched.h>
#include <sys/prctl.h>

#include <chrono>
#include <thread>

namespace gyre {
namespace {

// A pass is one poll, 0.1 to 0.3 us: together some 10 us, more than a message takes within a host.
constexpr int kSpins = 64;
// A yield returns at once where the core has nothing else to do; 64 are then about 20 us.
constexpr int kYields = 64;
// 64 short sleeps are 1.5 ms.  After that, late by 50 us is little against the wait, and polling
// costs some 2 % of a core.
constexpr int kShortSleeps = 64;
constexpr std::chrono::microseconds kShortSleep{20}, kLongSleep{50};

}  // namespace

void Backoff::Pause() {
  if (passes_ < kSpins + kYields + kShortSleeps) ++passes_;
  if (passes_ <= kSpins) return;
  if (passes_ <= kSpins + kYields) {
    sched_yield();
  } else {
    const bool brief = passes_ < kSpins + kYields + kShortSleeps;
    std::this_thread::sleep_for(brief ? kShortSleep : kLongSleep);
  }
}

void AllowShortSleeps() { prctl(PR_SET_TIMERSLACK, 1000UL /* ns */, 0UL, 0UL, 0UL); }

}  // namespace gyre
