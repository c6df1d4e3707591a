// backoff.h: how a thread waits for something that can only be polled: spin, then sleep.
//
// A message between two processes of one host takes microseconds, a bucket's next gradient
// milliseconds; and the thread that polls shares its core with the one that computes.
#pragma once

namespace gyre {

class Backoff {
 public:
  // Something happened: the next thing is likely near.
  void Reset() { passes_ = 0; }
  // Nothing happened: gives up the core, for longer the more often this is called in a row.
  void Pause();

 private:
  int passes_ = 0;
};

}  // namespace gyre
