// flags.h: parses a program's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gyre {

// A heading of --help and its flags' names, the most wanted first.
struct FlagGroup {
  absl::string_view title;
  std::vector<absl::string_view> flags;
};

// Prepares the process (process.h) and parses absl flags.  Prints and exits for --help and
// --version.  `groups` has all flags of the program.  Each --set adds to the ones before it.
// Returns the arguments that are no flags, if `takes_arguments`.  What follows "--" is one.
// Errors end the program with kExitUsage, also for other positional arguments and empty values.
std::vector<std::string> ParseFlags(int argc, char** argv, absl::string_view usage,
                                    const std::vector<FlagGroup>& groups,
                                    bool takes_arguments = false);

}  // namespace gyre
