// svg.h: an image as text, for pictures that tools draw.  It needs no other file.  Plain data, used
// by one thread.
#pragma once

#include <string>

#include "absl/strings/str_format.h"

namespace gyre {

// Told apart also by who sees no red or green, and in grey (Okabe and Ito).
inline constexpr const char* kSvgColours[] = {"#999999", "#0072b2", "#56b4e9",
                                              "#e69f00", "#009e73", "#cc79a7"};

// Text as XML has it.
std::string EscapedXml(const std::string& text);

// 1, 2 or 5 times a power of ten (of two, for bytes): about `ticks` of it are `range`.
double TickOf(double range, int ticks, bool bytes);

// In pixels, from the upper left corner.
class SvgImage {
 public:
  // White, with a title in it that begins at title_x.
  SvgImage(int width, int height, const std::string& title, int title_x);

  // anchor: start, middle or end.
  void Text(double x, double y, const char* anchor, const std::string& text,
            const char* colour = "#24292f");
  // title: what who points at it is told; with one it is set off from its neighbours.
  void Rect(double x, double y, double width, double height, const char* colour,
            const std::string& title = "");
  // Any element.
  template <typename... Args>
  void Add(const absl::FormatSpec<Args...>& format, const Args&... args) {
    absl::StrAppendFormat(&svg_, format, args...);
  }

  // The whole of it; nothing may be added after.
  std::string Finish() &&;

 private:
  std::string svg_;
};

}  // namespace gyre
