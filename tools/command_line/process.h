// process.h: a command's standing with the system that started it: descriptors, signals, memory,
// and whether anyone got what it printed.
#pragma once

namespace gyre {

// First of all.  Keeps closed descriptors 0, 1 and 2 from being given to files; makes a file that
// grows too long and a reader that goes away an error of writing; what no code catches (no memory,
// no more threads, a mapped file that has been cut) ends the program with one line on stderr and
// kExitFailed.
void PrepareProcess();

// Last of all, before `exit_code` is returned: kExitFailed with a line on stderr if something that
// was printed did not arrive.
int FinishOutput(int exit_code);

}  // namespace gyre
