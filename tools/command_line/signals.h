// signals.h: requests that signals make of train.  One atomic state a process.  Any thread.
#pragma once

#include <atomic>

namespace gyre {

struct SignalState {
  std::atomic<bool> stop = false, save = false;  // requested
  std::atomic<bool> training = false;            // there is something to save
  std::atomic<const char*> said = "";            // this rank's message about a signal that stops
};
SignalState& Signals();

// The first stopping signal requests a checkpoint and a clean end, the second kills.  SIGUSR1
// requests a checkpoint.  Precondition: no other thread has begun.  One thread gets all signals.
void HandleSignals();

}  // namespace gyre
