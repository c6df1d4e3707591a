// signals.h: what signals ask of train.  One state a process, as signals are; atomic, any thread.
#pragma once

#include <atomic>

namespace gyre {

struct SignalState {
  std::atomic<bool> stop = false, save = false;  // asked for
  std::atomic<bool> training = false;            // there is something to save
  std::atomic<const char*> said = "";            // by this rank, of a signal that stops
};
SignalState& Signals();

// The first signal that stops asks for a checkpoint and a clean end; the second one kills.  SIGUSR1
// asks for a checkpoint.  Before any other thread begins: signals reach a thread of their own.
void HandleSignals();

}  // namespace gyre
