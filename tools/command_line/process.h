// process.h: prepares a command's descriptors, signals and last words, and checks its output.
#pragma once

namespace gyre {

// First in main.  Opens closed descriptors 0, 1 and 2, so that no file gets them.  Files that grow
// too long, and readers that go away, become errors of writing.  Faults that no code catches (no
// memory, no threads, a mapped file that was cut) print one line and exit with kExitFailed.
void PrepareProcess();

// Last in main.  Returns `exit_code`, or kExitFailed with a line on stderr if output was lost.
int FinishOutput(int exit_code);

}  // namespace gyre
