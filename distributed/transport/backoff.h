// backoff.h: how a thread waits for an event that it can only poll.  It spins, then sleeps.
//
// A message within a host takes microseconds, and a bucket's next gradient milliseconds.  The
// polling thread shares its core with a computing thread.
#pragma once

#include <chrono>
#include <optional>

namespace gyre {

class Backoff {
 public:
  // After an event.  The next is likely to be near.
  void Reset() { since_.reset(); }
  // After a poll without an event.  Gives up the core, for longer the longer the wait has been.
  void Pause();

 private:
  std::optional<std::chrono::steady_clock::time_point> since_;  // the first poll without an event
};

}  // namespace gyre
