#include "tools/help.h"

#include <algorithm>
#include <map>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr size_t kColumns = 80;

// Cut behind spaces, and a longer word behind commas.
std::vector<absl::string_view> WordsOf(absl::string_view text, size_t columns) {
  std::vector<absl::string_view> words;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    while (word.size() > columns) {
      const size_t comma = word.rfind(',', columns - 1);
      if (comma == absl::string_view::npos) break;
      words.push_back(word.substr(0, comma + 1));
      word.remove_prefix(comma + 1);
    }
    words.push_back(word);
  }
  return words;
}

std::string Wrapped(const std::string& name, const std::string& text, size_t indent) {
  std::string out, line = name + std::string(indent - name.size(), ' ');
  bool first = true;  // in its line
  for (const absl::string_view word : WordsOf(text, kColumns - indent)) {
    if (!first && line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, line, "\n");
      line = std::string(indent, ' ');
      first = true;
    }
    absl::StrAppend(&line, first ? "" : " ", word);
    first = false;
  }
  return absl::StrCat(out, line, "\n");
}

std::string TextOf(const absl::CommandLineFlag& flag) {
  const std::string value = flag.DefaultValue();
  const bool show = !value.empty() && value != "false" && value != "0";
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
      absl::StrAppend(&help, Wrapped(absl::StrCat("  --", name), found->second, indent));
      ++shown;
    }
  }
  GYRE_CHECK(shown == texts.size());  // a flag without a group, or in two
  return help;
}

}  // namespace gyre
