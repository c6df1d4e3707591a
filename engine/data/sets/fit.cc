#include "engine/data/sets/fit.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/tables/table_fit.h"

namespace gyre {
namespace {

std::string FirstDifference(const std::string& name, const std::string& expected,
                            const std::string& got) {
  const std::vector<std::string> a = absl::StrSplit(expected, '\n');
  const std::vector<std::string> b = absl::StrSplit(got, '\n');
  size_t line = 0;
  while (line < std::min(a.size(), b.size()) && a[line] == b[line]) ++line;
  const auto at = [&](const std::vector<std::string>& lines) {
    return line + 1 < lines.size() ? absl::StrCat("\"", lines[line], "\"") : "its end";
  };
  return absl::StrFormat("line %d of %s is %s, but %s here", line + 1, name, at(a), at(b));
}

}  // namespace

std::vector<std::string> ClassNamesOf(const Fit& fit) {
  if (const auto names = fit.find(kClassesFile); names != fit.end()) {
    return absl::StrSplit(names->second, '\n', absl::SkipEmpty());
  }
  if (const auto text = fit.find(kVocabularyFile); text != fit.end()) {
    const absl::StatusOr<Vocabulary> vocabulary = Vocabulary::Parse(text->second);
    return vocabulary.ok() ? vocabulary->classes() : std::vector<std::string>();
  }
  const auto text = fit.find(kTableFile);
  if (text == fit.end()) return {};
  const absl::StatusOr<TableFit> table = ParseTableFit(text->second);
  return table.ok() ? table->classes : std::vector<std::string>();
}

std::string NameOfClass(int64_t number, const std::vector<std::string>& names) {
  const bool named = number >= 0 && number < static_cast<int64_t>(names.size());
  return named ? names[static_cast<size_t>(number)] : absl::StrCat(number);
}

std::string ExactText(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

std::string ExactText(float number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

std::string DifferenceOf(const Fit& expected, const Fit& got) {
  for (const auto& [name, text] : expected) {
    const auto same = got.find(name);
    if (same == got.end()) {
      const auto other = std::ranges::find_if(
          got, [&](const auto& text_of) { return !expected.contains(text_of.first); });
      return absl::StrFormat("%s is expected, but it is %s", name,
                             other == got.end() ? "none" : other->first);
    }
    if (same->second != text) return FirstDifference(name, text, same->second);
  }
  return "";
}

}  // namespace gyre
