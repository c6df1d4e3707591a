// svg.cc: see svg.h.

#include "engine/runtime/svg.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace gyre {

std::string EscapedXml(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

double TickOf(double range, int ticks, bool bytes) {
  const double wanted = range / ticks;
  if (bytes) return std::exp2(std::ceil(std::log2(wanted)));
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  for (const double times : {1, 2, 5}) {
    if (times * power >= wanted) return times * power;
  }
  return 10 * power;
}

SvgImage::SvgImage(int width, int height, const std::string& title, int title_x) {
  Add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<title>%s</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n"
      "<text x=\"%d\" y=\"22\" font-size=\"15\" font-weight=\"bold\">%s</text>\n",
      width, height, EscapedXml(title), width, height, title_x, EscapedXml(title));
}

void SvgImage::Text(double x, double y, const char* anchor, const std::string& text,
                    const char* colour) {
  Add("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor,
      colour, EscapedXml(text));
}

void SvgImage::Rect(double x, double y, double width, double height, const char* colour,
                    const std::string& title) {
  Add("<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"", x, y, width, height,
      colour);
  // Tells neighbours apart.
  if (!title.empty() && width > 3) svg_ += " stroke=\"#ffffff\" stroke-width=\"0.5\"";
  absl::StrAppend(&svg_, title.empty()
                             ? "/>\n"
                             : absl::StrCat("><title>", EscapedXml(title), "</title></rect>\n"));
}

std::string SvgImage::Finish() && {
  svg_ += "</svg>\n";
  return std::move(svg_);
}

}  // namespace gyre
