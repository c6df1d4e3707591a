// help.h: what --help prints: a program's use, then its flags by groups, in at most 80 columns.
// Pure functions over Abseil's registry of flags, which does neither.
#pragma once

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/strings/string_view.h"
#include "tools/command_line/command_line.h"

namespace gyre {

// The flags that our own sources define, by name; Abseil brings some too.
std::vector<absl::CommandLineFlag*> OurFlags();

// usage: what the program does, its commands and what it prints; lines as they are.  groups: each
// of OurFlags in one of them (GYRE_CHECK).
std::string HelpText(absl::string_view program, absl::string_view usage,
                     const std::vector<FlagGroup>& groups);

}  // namespace gyre
