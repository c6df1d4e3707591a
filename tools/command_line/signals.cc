#include "tools/command_line/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "distributed/transport/launcher.h"

namespace gyre {
namespace {

constinit SignalState state;

void Print(const char* line) {
  if (write(STDERR_FILENO, line, std::strlen(line)) < 0) return;  // as a handler may
}

// A reader of stdout that went away is no reason to lose the run, either; nor is a limit of CPU
// time, which comes again each second.
void OnSignal(int signal) {
  if (signal == SIGUSR1) {
    state.save = true;
    return;
  }
  state.stop = true;
  const bool repeats = signal == SIGPIPE || (signal == SIGXCPU && state.training);
  std::signal(signal, repeats ? SIG_IGN : SIG_DFL);
  if (state.training) return Print(state.said);
  Print("stopped before training began\n");
  raise(signal);  // once this handler is left
}

}  // namespace

SignalState& Signals() { return state; }

// On the stack of a thread that computes a handler would overwrite what oneDNN's kernels keep
// beyond its end, and with it the heap.
void HandleSignals() {
  if (Launcher() == "mpirun" && AnnouncedRank().rank == 0) {
    // Behind what progress has left on a line.
    state.said =
        "\nstopping, with a checkpoint if all ranks are there; if mpirun kills first,\n"
        "  start it with --mca odls_base_sigkill_timeout 30\n";
  }
  sigset_t signals;
  sigemptyset(&signals);
  // What people, batch systems and limits end a program by, or warn it with.
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGPWR}) {
    sigaddset(&signals, signal);
    const bool ignored = std::signal(signal, OnSignal) == SIG_IGN;
    // A closed terminal; under nohup it stays ignored.
    if (ignored && signal == SIGHUP) std::signal(signal, SIG_IGN);
  }
  std::signal(SIGPIPE, OnSignal);  // of a write, on the thread that writes
  std::thread([] {
    for (;;) pause();
  }).detach();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // here, and on the threads that begin from now on
}

}  // namespace gyre
