// svg.h: a picture as SVG text, which needs no other file.  Plain data, used by one thread.
#pragma once

#include <string>

#include "absl/strings/str_format.h"

namespace gyre {

// Colours that differ also without red or green, and in grey (Okabe and Ito).
inline constexpr const char* kSvgColours[] = {"#999999", "#0072b2", "#56b4e9",
                                              "#e69f00", "#009e73", "#cc79a7"};

std::string EscapedXml(const std::string& text);

// Returns a distance between ticks, which is 1, 2 or 5 times a power of ten, or for bytes a power
// of two.  `range` has about `ticks` of them.
double TickOf(double range, int ticks, bool bytes);

// Coordinates are pixels from the upper left corner.
class SvgImage {
 public:
  // White, with a title that begins at title_x.
  SvgImage(int width, int height, const std::string& title, int title_x);

  // `anchor` is start, middle or end.
  void Text(double x, double y, const char* anchor, const std::string& text,
            const char* colour = "#24292f");
  // A title is shown at the pointer, and sets the rectangle off from its neighbours.
  void Rect(double x, double y, double width, double height, const char* colour,
            const std::string& title = "");
  // Any element.
  template <typename... Args>
  void Add(const absl::FormatSpec<Args...>& format, const Args&... args) {
    absl::StrAppendFormat(&svg_, format, args...);
  }

  // Returns the whole text.  Nothing may be added after.
  std::string Finish() &&;

 private:
  std::string svg_;
};

}  // namespace gyre
