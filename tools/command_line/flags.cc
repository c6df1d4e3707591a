// flags.cc: ParseFlags and --help, over Abseil's flags.  Abseil's own parser ends the program with
// 1, for --help too, and prints once a rank.  Its registry offers neither groups nor 80 columns.

#include "tools/command_line/flags.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "distributed/transport/launcher.h"
#include "engine/runtime/check.h"
#include "engine/runtime/version.h"
#include "engine/runtime/wrapped_text.h"
#include "models/schema/describe.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/process.h"

namespace gyre {
namespace {

// The flags of our own sources, by name.  Abseil defines others.
std::map<std::string, absl::CommandLineFlag*> OurFlags() {
  std::map<std::string, absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::StrContains(flag->Filename(), "tools/")) flags[std::string(name)] = flag;
  }
  return flags;
}

absl::CommandLineFlag* Find(absl::string_view name) {
  const auto flags = OurFlags();
  const auto found = flags.find(std::string(name));
  return found == flags.end() ? nullptr : found->second;
}

absl::Status SetFlag(absl::CommandLineFlag& flag, absl::string_view value) {
  if (value.empty()) {  // as of a shell's variable that is not set
    return absl::InvalidArgumentError(absl::StrFormat("--%s=: expected a value", flag.Name()));
  }
  // Each --set adds to the ones before it.
  std::string text(value);
  if (flag.Name() == "set" && !flag.CurrentValue().empty()) {
    text = absl::StrCat(flag.CurrentValue(), std::string(1, kBetweenSets), value);
  }
  if (flag.IsOfType<bool>() && (text == "on" || text == "off")) {
    text = text == "on" ? "true" : "false";
  }
  std::string why;
  if (flag.ParseFrom(text, &why)) return absl::OkStatus();
  int64_t beyond = 0;
  const std::string expected =
      flag.IsOfType<bool>()     ? "on or off"
      : flag.IsOfType<double>() ? "a number"
      : flag.IsOfType<int>() && absl::SimpleAtoi(value, &beyond)
          ? absl::StrCat("a ", beyond < 0 ? "larger" : "smaller", " integer")
          : "an integer";
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag.Name(), "=", value, ": expected ", expected,
                   flag.IsOfType<double>() ? PointAdvice({value.data(), value.size()}) : ""));
}

// argv[*index], and argv[*index + 1] if that is its value.
absl::Status ParseArgument(int argc, char** argv, int* index) {
  const absl::string_view argument = argv[*index];
  absl::string_view name = argument;
  if (!absl::ConsumePrefix(&name, "-")) {
    return absl::InvalidArgumentError(
        absl::StrFormat("unexpected argument \"%s\"; flags begin with --", argument));
  }
  absl::ConsumePrefix(&name, "-");
  const size_t equals = name.find('=');
  const bool has_value = equals != absl::string_view::npos;
  const absl::string_view value = has_value ? name.substr(equals + 1) : "";
  name = name.substr(0, equals);

  if (absl::CommandLineFlag* flag = Find(name)) {
    if (has_value) return SetFlag(*flag, value);
    if (flag->IsOfType<bool>()) return SetFlag(*flag, "true");
    if (*index + 1 < argc) return SetFlag(*flag, argv[++*index]);
    return absl::InvalidArgumentError(absl::StrFormat("--%s: expected a value after it", name));
  }
  absl::string_view negated = name;
  if (!has_value && absl::ConsumePrefix(&negated, "no")) {
    absl::CommandLineFlag* flag = Find(negated);
    if (flag != nullptr && flag->IsOfType<bool>()) return SetFlag(*flag, "false");
  }
  std::vector<std::string> names;
  for (const auto& [known, flag] : OurFlags()) names.push_back(known);
  return absl::InvalidArgumentError(Unknown("flag", name, names));
}

// A default of its own words is in the flag's text.
std::string TextOf(const absl::CommandLineFlag& flag) {
  const std::string value = flag.DefaultValue();
  const bool show =
      !value.empty() && value != "false" && !absl::StrContains(flag.Help(), "Default: ");
  if (!show) return flag.Help();
  return absl::StrCat(flag.Help(), " Default: ", value == "true" ? "on" : value, ".");
}

// `usage` has the program's purpose, commands and output, and is printed as it is.  `groups` must
// have each of OurFlags once (GYRE_CHECK).
std::string HelpText(absl::string_view program, absl::string_view usage,
                     const std::vector<FlagGroup>& groups) {
  std::map<std::string, std::string> texts = {{"help", "This text."},
                                              {"version", "The program's version."}};
  for (const auto& [name, flag] : OurFlags()) texts[name] = TextOf(*flag);
  size_t longest = 0, shown = 0;
  for (const auto& [name, text] : texts) longest = std::max(longest, name.size());
  const size_t indent = longest + 6;
  std::string help = absl::StrCat(program, " ", usage, "\n");
  std::vector<FlagGroup> all = groups;
  for (const char* name : {"help", "version"}) all.back().flags.emplace_back(name);
  for (const FlagGroup& group : all) {
    absl::StrAppend(&help, "\n", group.title, ":\n");
    for (const absl::string_view name : group.flags) {
      const auto found = texts.find(std::string(name));
      GYRE_CHECK(found != texts.end());
      std::string head = absl::StrCat("  --", name);
      head.resize(indent, ' ');
      absl::StrAppend(&help, Wrapped(head, found->second, indent), "\n");
      ++shown;
    }
  }
  GYRE_CHECK(shown == texts.size());  // a flag without a group, or in two
  return help;
}

// Of a path the last part.
absl::string_view NameOf(absl::string_view program) {
  const size_t slash = program.rfind('/');
  return slash == absl::string_view::npos ? program : program.substr(slash + 1);
}

}  // namespace

std::vector<std::string> ParseFlags(int argc, char** argv, absl::string_view usage,
                                    const std::vector<FlagGroup>& groups, bool takes_arguments) {
  PrepareProcess();
  const int rank = AnnouncedRank().rank;
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (takes_arguments && argument == "--") {
      arguments.insert(arguments.end(), argv + i + 1, argv + argc);
      break;
    }
    // "-" alone is standard input.
    if (takes_arguments && (argument == "-" || !absl::StartsWith(argument, "-"))) {
      arguments.emplace_back(argument);
      continue;
    }
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      if (rank == 0) std::fputs(HelpText(NameOf(argv[0]), usage, groups).c_str(), stdout);
      std::exit(FinishOutput(0));
    }
    if (argument == "--version" || argument == "-version") {
      if (rank == 0) std::printf("%s (Gyre) %s\n", std::string(NameOf(argv[0])).c_str(), kVersion);
      std::exit(FinishOutput(0));
    }
    const absl::Status status = ParseArgument(argc, argv, &i);
    if (status.ok()) continue;
    // Where every rank has the same command line, one speaks, and mpirun ends the others.
    if (rank > 0) std::this_thread::sleep_for(kOtherRanksWait);
    std::fprintf(stderr, "error: %s%s (see --help)\n",
                 rank > 0 ? absl::StrCat("rank ", rank, ": ").c_str() : "",
                 std::string(status.message()).c_str());
    std::exit(kExitUsage);
  }
  return arguments;
}

}  // namespace gyre
