// scaling_picture.cc: see scaling_picture.h.

#include "tools/scaling/scaling_picture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/runtime/svg.h"

namespace gyre {
namespace {

// In pixels.
constexpr int kWidth = 640, kHeight = 360, kLeft = 56, kRight = 450, kTop = 44, kBottom = 316;
constexpr double kNameHeight = 14;

double Y(double efficiency) { return kBottom - (kBottom - kTop) * efficiency; }

// Where names go that want to be at `wanted`: as near as they can without lying on each other.
std::vector<double> Apart(const std::vector<double>& wanted) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return wanted[i]; });
  std::vector<double> at(wanted.size());
  double least = kTop;
  for (const size_t i : order) {
    at[i] = std::max(wanted[i], least);
    least = at[i] + kNameHeight;
  }
  double most = kBottom;
  for (size_t i = order.size(); i-- > 0;) {
    at[order[i]] = std::min(at[order[i]], most);
    most = at[order[i]] - kNameHeight;
  }
  return at;
}

}  // namespace

std::string ScalingPicture(const std::vector<ScalingLine>& lines, const std::string& title) {
  SvgImage svg(kWidth, kHeight, title, kLeft);
  int least = lines[0].points[0].ranks, most = least;
  for (const ScalingLine& line : lines) {
    for (const ScalingPoint& point : line.points) {
      least = std::min(least, point.ranks);
      most = std::max(most, point.ranks);
    }
  }
  const auto x_of = [&](int ranks) {
    return kLeft +
           (kRight - kLeft) * std::log2(1.0 * ranks / least) / std::log2(1.0 * most / least);
  };
  for (int percent = 0; percent <= 100; percent += 20) {
    const double y = Y(percent / 100.0);
    svg.Add("<path d=\"M%d %.1fH%d\" stroke=\"#d0d7de\" stroke-width=\"0.7\"/>\n", kLeft, y,
            kRight);
    svg.Text(kLeft - 6, y + 4, "end", absl::StrCat(percent, percent == 100 ? " %" : ""));
  }
  double free_from = 0;  // of the names of ranks
  for (double ranks = least; ranks <= most; ranks *= 2) {
    const double x = x_of(static_cast<int>(ranks));
    if (x < free_from) continue;
    svg.Text(x, kBottom + 18, "middle", absl::StrCat(ranks));
    free_from = x + 36;
  }
  svg.Text((kLeft + kRight) / 2.0, kBottom + 36, "middle", "ranks");
  std::vector<double> ends;
  for (const ScalingLine& line : lines) ends.push_back(Y(line.points.back().efficiency));
  const std::vector<double> names = Apart(ends);
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* const colour = kSvgColours[(i + 1) % std::size(kSvgColours)];
    svg.Add("<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"", colour);
    for (const ScalingPoint& point : lines[i].points) {
      svg.Add("%c%.1f %.1f", &point == &lines[i].points[0] ? 'M' : 'L', x_of(point.ranks),
              Y(point.efficiency));
    }
    svg.Add("\"><title>%s</title></path>\n", EscapedXml(lines[i].name));
    svg.Text(kRight + 8, names[i] + 4, "start",
             absl::StrFormat("%s %.0f", lines[i].name, 100 * lines[i].points.back().efficiency),
             colour);
  }
  return std::move(svg).Finish();
}

}  // namespace gyre
