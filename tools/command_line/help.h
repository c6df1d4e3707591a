// help.h: the text of --help, a program's usage and its flags by groups, in at most 80 columns.
// Pure functions over Abseil's registry of flags, which offers neither groups nor that width.
#pragma once

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/strings/string_view.h"
#include "tools/command_line/flags.h"

namespace gyre {

// The flags of our own sources, by name.  Abseil defines others.
std::vector<absl::CommandLineFlag*> OurFlags();

// `usage` has the program's purpose, commands and output, and is printed as it is.  `groups` must
// have each of OurFlags once (GYRE_CHECK).
std::string HelpText(absl::string_view program, absl::string_view usage,
                     const std::vector<FlagGroup>& groups);

}  // namespace gyre
