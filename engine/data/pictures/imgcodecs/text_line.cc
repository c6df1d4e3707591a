#include "engine/data/pictures/imgcodecs/text_line.h"

#include <opencv2/imgproc.hpp>

namespace gyre {
namespace {

// Drawn larger and made smaller: strokes of the font are lines, which are legible only so where
// letters have a few pixels.
constexpr int kTimes = 4;
constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;

std::string Ascii(const std::string& text) {
  std::string ascii;
  for (const char c : text) {
    if ((c & 0xc0) == 0x80) continue;  // UTF-8: within a character
    ascii += c >= ' ' && c <= '~' ? c : '?';
  }
  return ascii;
}

}  // namespace

Refusal DrawTextLine(const std::string& text, int64_t height, int64_t width, uint8_t* to) {
  const int rows = static_cast<int>(height), columns = static_cast<int>(width);
  // Capitals take 21 of the font's units above the line, letters as "g" 9 below it.
  constexpr double kCapital = 21, kBelow = 9;
  constexpr double kSmaller = 0.75;  // is still legible
  double scale = kTimes * rows / (kCapital + kBelow + 4);
  const int base = cvRound((kCapital + 2) * scale);
  const auto stroke = [&] { return std::max(1, cvRound(1.9 * scale)); };
  const auto wide = [&](const std::string& line) {
    int below;
    return cv::getTextSize(line, kFont, scale, stroke(), &below).width > kTimes * columns;
  };
  std::string line = Ascii(text);
  if (wide(line)) scale *= kSmaller;
  // No line has more characters than columns.
  size_t kept = std::min(line.size(), static_cast<size_t>(columns));
  const std::string whole = line;
  while (kept > 0 && (line.size() > static_cast<size_t>(columns) || wide(line))) {
    --kept;
    line = whole.substr(0, kept - kept / 2) + "..." + whole.substr(whole.size() - kept / 2);
  }
  cv::Mat large(kTimes * rows, kTimes * columns, CV_8UC1, cv::Scalar(255));
  cv::putText(large, line, {stroke(), base}, kFont, scale, cv::Scalar(0), stroke(), cv::LINE_AA);
  cv::Mat small(rows, columns, CV_8UC1, to);
  cv::resize(large, small, small.size(), 0, 0, cv::INTER_AREA);
  return {};
}

}  // namespace gyre
