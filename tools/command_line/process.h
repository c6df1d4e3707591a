// process.h: prepares a command's descriptors, signals, last words and waiting threads, and checks
// its output.
// Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong flags, 130 stopped.
#pragma once

#include <chrono>

namespace gyre {

inline constexpr int kExitFailed = 1, kExitUsage = 2, kExitStopped = 130;
// Other ranks wait so long with an error, so that rank 0's comes first and mpirun, after a second,
// ends them.  It is longer than ranks of a busy machine differ in reaching the same error.
inline constexpr std::chrono::milliseconds kOtherRanksWait(3000);

// First in main.  Restarts the program with a GOMP_SPINCOUNT, unless the environment chooses how
// OpenMP's threads wait, or binds them to cores.  libgomp reads it before main runs.  Its default
// is to spin for milliseconds, on a busy machine on the cores of the threads that it waits for.
void LetWaitingThreadsSleep(char** argv);

// Opens closed descriptors 0, 1 and 2, so that no file gets them.  Files that grow too long, and
// readers that go away, become errors of writing.  Faults that no code catches (no memory, no
// threads, a mapped file that was cut) print one line and exit with kExitFailed.
void PrepareProcess();

// Last in main.  Returns `exit_code`, or kExitFailed with a line on stderr if output was lost.
int FinishOutput(int exit_code);

}  // namespace gyre
