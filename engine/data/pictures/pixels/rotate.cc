#include "engine/data/pictures/pixels/rotate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

// A coordinate has kBits below the point, of which bilinear weights use the upper kWeightBits.
constexpr int kBits = 10, kWeightBits = 5;

struct Coordinates {
  int64_t y, x;
};

Coordinates Fixed(double y, double x) {
  return {std::llrint(y * (1 << kBits)), std::llrint(x * (1 << kBits))};
}

// A copy of a picture with kRim rows and columns of zeros on each side.
template <int kChannels>
class RimmedPicture {
 public:
  RimmedPicture(int64_t height, int64_t width, const uint8_t* pixels)
      : height_(height), width_(width), stride_((width + 2 * kRim) * kChannels) {
    bytes_.resize(static_cast<size_t>((height + 2 * kRim) * stride_));
    const int64_t row = width * kChannels;
    for (int64_t y = 0; y < height; ++y) {
      std::memcpy(&bytes_[(y + kRim) * stride_ + kRim * kChannels], pixels + y * row, row);
    }
  }

  int64_t stride() const { return stride_; }

  // The pixel at `at`, or zeros outside.  Its neighbours to the right and below follow in memory.
  const uint8_t* At(const Coordinates& at) const {
    const int64_t y = std::clamp(at.y, -kRim, height_), x = std::clamp(at.x, -kRim, width_);
    return bytes_.data() + (y + kRim) * stride_ + (x + kRim) * kChannels;
  }

 private:
  static constexpr int64_t kRim = 2;

  const int64_t height_, width_, stride_;
  std::vector<uint8_t> bytes_;
};

// The coordinate in units of 2^-(kBits - dropped), rounded.
int64_t Rounded(int64_t coordinate, int dropped) {
  return (coordinate + (1 << (dropped - 1))) >> dropped;
}

template <int kChannels>
void NearestPixel(const RimmedPicture<kChannels>& from, const Coordinates& at, uint8_t* to) {
  const uint8_t* const pixel = from.At({Rounded(at.y, kBits), Rounded(at.x, kBits)});
  for (int c = 0; c < kChannels; ++c) to[c] = pixel[c];
}

template <int kChannels>
void LinearPixel(const RimmedPicture<kChannels>& from, const Coordinates& at, uint8_t* to) {
  constexpr int kOne = 1 << kWeightBits;
  const int64_t y = Rounded(at.y, kBits - kWeightBits), x = Rounded(at.x, kBits - kWeightBits);
  const int down = static_cast<int>(y & (kOne - 1)), right = static_cast<int>(x & (kOne - 1));
  const uint8_t* const upper = from.At({y >> kWeightBits, x >> kWeightBits});
  const uint8_t* const lower = upper + from.stride();
  for (int c = 0; c < kChannels; ++c) {
    const int above = (kOne - right) * upper[c] + right * upper[c + kChannels];
    const int below = (kOne - right) * lower[c] + right * lower[c + kChannels];
    const int sum = (kOne - down) * above + down * below;
    to[c] = static_cast<uint8_t>((sum + kOne * kOne / 2) >> (2 * kWeightBits));
  }
}

template <int kChannels>
void RotatePixels(double degrees, TurnFilter filter, int64_t height, int64_t width,
                  uint8_t* pixels) {
  const RimmedPicture<kChannels> from(height, width, pixels);
  const double radians = degrees * std::numbers::pi / 180;
  const double cosine = std::cos(radians), sine = std::sin(radians);
  const double center_y = (static_cast<double>(height) - 1) / 2;
  const double center_x = (static_cast<double>(width) - 1) / 2;
  std::vector<Coordinates> steps;  // from the source of a row's first pixel to those of others
  for (int64_t x = 0; x < width; ++x) {
    steps.push_back(Fixed(sine * static_cast<double>(x), cosine * static_cast<double>(x)));
  }
  for (int64_t y = 0; y < height; ++y) {
    const double down = static_cast<double>(y) - center_y;
    const Coordinates first = Fixed(center_y - sine * center_x + cosine * down,
                                    center_x - cosine * center_x - sine * down);
    for (const Coordinates& step : steps) {
      const Coordinates at = {first.y + step.y, first.x + step.x};
      if (filter == TurnFilter::kNearest) {
        NearestPixel(from, at, pixels);
      } else {
        LinearPixel(from, at, pixels);
      }
      pixels += kChannels;
    }
  }
}

}  // namespace

void Rotate(double degrees, TurnFilter filter, int64_t height, int64_t width, int channels,
            uint8_t* pixels) {
  switch (channels) {
    case 1:
      return RotatePixels<1>(degrees, filter, height, width, pixels);
    case 3:
      return RotatePixels<3>(degrees, filter, height, width, pixels);
    case 4:
      return RotatePixels<4>(degrees, filter, height, width, pixels);
    default:
      GYRE_CHECK(false);
  }
}

}  // namespace gyre
