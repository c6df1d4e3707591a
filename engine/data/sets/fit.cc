#include "engine/data/sets/fit.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace gyre {

std::string DifferenceOf(const Fit& expected, const Fit& got) {
  if (expected.name == got.name && expected.text == got.text) return "";
  const auto name = [](const Fit& fit) { return fit.name.empty() ? "none" : fit.name; };
  if (expected.name != got.name) {
    return absl::StrFormat("%s is expected, but it is %s", name(expected), name(got));
  }
  const std::vector<std::string> a = absl::StrSplit(expected.text, '\n');
  const std::vector<std::string> b = absl::StrSplit(got.text, '\n');
  size_t line = 0;
  while (line < std::min(a.size(), b.size()) && a[line] == b[line]) ++line;
  const auto at = [&](const std::vector<std::string>& lines) {
    return line + 1 < lines.size() ? absl::StrCat("\"", lines[line], "\"") : "its end";
  };
  return absl::StrFormat("line %d of %s is %s, but %s here", line + 1, got.name, at(a), at(b));
}

}  // namespace gyre
