#include "engine/data/pictures/pixels/axis_weights.h"

#include <algorithm>
#include <cmath>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

// The source pixels of one result, and their shares in it.
struct Shares {
  int64_t first = 0;
  std::vector<double> of;
};

// A triangle over the result's centre, `support` source pixels to each side.  Beyond the picture's
// edges there is nothing, and the pixels inside weigh more.
// Source: precompute_coeffs of Pillow's Resample.c, in its order of operations.
void SetTriangle(int64_t from, double scale, double support, int64_t result, Shares& shares) {
  const double center = (static_cast<double>(result) + 0.5) * scale, inverse = 1 / support;
  shares.first = std::max(static_cast<int64_t>(center - support + 0.5), int64_t{0});
  const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), from);
  double sum = 0;
  for (int64_t x = shares.first; x < end; ++x) {
    const double distance = std::abs((static_cast<double>(x) - center + 0.5) * inverse);
    shares.of.push_back(distance < 1 ? 1 - distance : 0);
    sum += shares.of.back();
  }
  for (double& share : shares.of) share /= sum;
}

// What the result covers of each source pixel.  In units of 1 / (from * to) of the axis, a source
// pixel is `to` long, and a result `from`.
void SetArea(int64_t from, int64_t to, int64_t result, Shares& shares) {
  const int64_t begin = result * from, end = begin + from;
  shares.first = begin / to;
  for (int64_t x = shares.first; x * to < end; ++x) {
    const int64_t covered = std::min((x + 1) * to, end) - std::max(x * to, begin);
    shares.of.push_back(static_cast<double>(covered) / static_cast<double>(from));
  }
}

}  // namespace

void AxisWeights::Add(int64_t first_pixel, const std::vector<double>& shares) {
  first.push_back(first_pixel);
  for (const double share : shares) {
    weights.push_back(static_cast<int32_t>(0.5 + share * (1 << kWeightBits)));
  }
  offset.push_back(static_cast<int64_t>(weights.size()));
}

AxisWeights ResizeWeights(ResizeFilter filter, int64_t from, int64_t to, int64_t begin,
                          int64_t end) {
  GYRE_CHECK(from > 0 && begin >= 0 && begin <= end && end <= to);
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  AxisWeights axis;
  axis.first.reserve(end - begin);
  axis.offset.reserve(end - begin + 1);
  axis.weights.reserve((end - begin) * (static_cast<int64_t>(2 * std::max(scale, 1.)) + 2));
  Shares shares;
  for (int64_t result = begin; result < end; ++result) {
    shares.of.clear();
    switch (filter) {
      case ResizeFilter::kAntialiased:
        SetTriangle(from, scale, std::max(scale, 1.), result, shares);
        break;
      case ResizeFilter::kLinear:
        SetTriangle(from, scale, 1, result, shares);
        break;
      case ResizeFilter::kArea:
        SetArea(from, to, result, shares);
        break;
      case ResizeFilter::kNearest:
        shares = {.first = (2 * result + 1) * from / (2 * to), .of = {1}};
        break;
    }
    axis.Add(shares.first, shares.of);
  }
  return axis;
}

AxisWeights BlurWeights(double sigma, int64_t size) {
  GYRE_CHECK(sigma > 0 && size > 0);
  const auto radius = static_cast<int64_t>(std::ceil(3 * sigma));
  std::vector<double> kernel;  // of distances 0 to radius
  double sum = 0;
  for (int64_t x = 0; x <= radius; ++x) {
    const double deviations = static_cast<double>(x) / sigma;
    kernel.push_back(std::exp(-0.5 * deviations * deviations));
    sum += (x == 0 ? 1 : 2) * kernel.back();
  }
  for (double& share : kernel) share /= sum;
  const int64_t period = std::max<int64_t>(2 * (size - 1), 1);
  AxisWeights axis;
  std::vector<double> shares;
  for (int64_t result = 0; result < size; ++result) {
    const int64_t first = std::max<int64_t>(result - radius, 0);
    shares.assign(std::min(result + radius + 1, size) - first, 0);
    for (int64_t x = result - radius; x <= result + radius; ++x) {
      const int64_t folded = std::abs(x) % period;
      shares[std::min(folded, period - folded) % size - first] += kernel[std::abs(x - result)];
    }
    axis.Add(first, shares);
  }
  return axis;
}

}  // namespace gyre
