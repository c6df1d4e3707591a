#include "tools/command_line/help.h"

#include <algorithm>
#include <map>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/wrapped_text.h"

namespace gyre {
namespace {

// A default of its own words is in the flag's text.
std::string TextOf(const absl::CommandLineFlag& flag) {
  const std::string value = flag.DefaultValue();
  const bool show =
      !value.empty() && value != "false" && !absl::StrContains(flag.Help(), "Default: ");
  if (!show) return flag.Help();
  return absl::StrCat(flag.Help(), " Default: ", value == "true" ? "on" : value, ".");
}

}  // namespace

std::vector<absl::CommandLineFlag*> OurFlags() {
  std::map<std::string, absl::CommandLineFlag*> sorted;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::StrContains(flag->Filename(), "tools/")) sorted[std::string(name)] = flag;
  }
  std::vector<absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : sorted) flags.push_back(flag);
  return flags;
}

std::string HelpText(absl::string_view program, absl::string_view usage,
                     const std::vector<FlagGroup>& groups) {
  std::map<std::string, std::string> texts = {{"help", "This text."},
                                              {"version", "The program's version."}};
  for (const absl::CommandLineFlag* flag : OurFlags()) {
    texts[std::string(flag->Name())] = TextOf(*flag);
  }
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

}  // namespace gyre
