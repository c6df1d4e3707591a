#include "engine/data/pictures/color.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gyre {
namespace {

using Color = std::array<uint8_t, 3>;

// Source: HTML 4.01, section 6.5.
constexpr std::pair<std::string_view, Color> kNamed[] = {
    {"black", {0, 0, 0}},       {"silver", {192, 192, 192}}, {"gray", {128, 128, 128}},
    {"white", {255, 255, 255}}, {"maroon", {128, 0, 0}},     {"red", {255, 0, 0}},
    {"purple", {128, 0, 128}},  {"fuchsia", {255, 0, 255}},  {"green", {0, 128, 0}},
    {"lime", {0, 255, 0}},      {"olive", {128, 128, 0}},    {"yellow", {255, 255, 0}},
    {"navy", {0, 0, 128}},      {"blue", {0, 0, 255}},       {"teal", {0, 128, 128}},
    {"aqua", {0, 255, 255}}};

// The value of a hexadecimal digit, or -1.
int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

absl::StatusOr<Color> ParseColor(std::string_view text) {
  const auto named = std::ranges::find(kNamed, text, &std::pair<std::string_view, Color>::first);
  if (named != std::end(kNamed)) return named->second;
  const bool hexadecimal =
      text.size() == 7 && text[0] == '#' &&
      std::ranges::all_of(text.substr(1), [](char c) { return Digit(c) >= 0; });
  if (!hexadecimal) {
    std::vector<std::string> names;
    for (const auto& [name, color] : kNamed) names.emplace_back(name);
    return absl::InvalidArgumentError(absl::StrCat("expected a colour, \"#rrggbb\" or one of ",
                                                   absl::StrJoin(names, ", "), ", got \"",
                                                   std::string(text), "\""));
  }
  Color color;
  for (size_t i = 0; i < 3; ++i) {
    color[i] = static_cast<uint8_t>(16 * Digit(text[1 + 2 * i]) + Digit(text[2 + 2 * i]));
  }
  return color;
}

}  // namespace gyre
