// backoff.h: how a thread waits for something that can only be polled: spin, then sleep.
//
// A message between two processes of one host takes microseconds, a bucket's next gradient
// milliseconds; and the thread that polls shares its core with the one that computes.
#pragma once

#include <chrono>
#include <optional>

namespace gyre {

class Backoff {
 public:
  // Something happened: the next thing is likely near.
  void Reset() { since_.reset(); }
  // Nothing happened: gives up the core, for longer the longer it is ago that something did.
  void Pause();

 private:
  std::optional<std::chrono::steady_clock::time_point> since_;  // nothing has happened
};

}  // namespace gyre
