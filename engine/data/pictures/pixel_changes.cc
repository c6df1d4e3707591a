#include "engine/data/pictures/pixel_changes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/data/pictures/pixels/blur.h"
#include "engine/data/pictures/pixels/color_changes.h"
#include "engine/data/pictures/pixels/noise.h"
#include "engine/data/pictures/pixels/rotate.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

double Between(const SampleDraw& draw, std::string_view purpose, double least, double most) {
  return least + (most - least) * draw.Uniform(purpose);
}

// 0, 1, 2, 3 in random order.  Source: Fisher and Yates, by Knuth's algorithm P.
std::array<int, 4> RandomOrder(const SampleDraw& draw) {
  std::array<int, 4> order = {0, 1, 2, 3};
  const RandomBits bits = draw.Bits("color order");
  for (uint32_t last = 3; last > 0; --last) {
    std::swap(order[last], order[UniformBelow(bits.v[last], last + 1)]);
  }
  return order;
}

void JitterColors(const PixelChanges& changes, const SampleDraw& draw, const ColorPixels& pixels) {
  const auto factor = [&](std::string_view purpose, double extent) {
    return Between(draw, purpose, std::max(1 - extent, 0.), 1 + extent);
  };
  for (const int change : RandomOrder(draw)) {
    if (change == 0 && changes.brightness > 0) {
      ChangeBrightness(factor("brightness", changes.brightness), pixels);
    } else if (change == 1 && changes.contrast > 0) {
      ChangeContrast(factor("contrast", changes.contrast), pixels);
    } else if (change == 2 && changes.saturation > 0) {
      ChangeSaturation(factor("saturation", changes.saturation), pixels);
    } else if (change == 3 && changes.hue > 0) {
      ChangeHue(Between(draw, "hue", -changes.hue, changes.hue), pixels);
    }
  }
}

// Moves all pixels along the principal axes of ImageNet's colours, by normal deviates of
// `deviation` times the axis's own extent.
void ChangeLighting(double deviation, const SampleDraw& draw, const ColorPixels& pixels) {
  // Square roots of the eigenvalues, and eigenvectors of red, green and blue, of values from 0
  // to 1. Source: fb.resnet.torch, datasets/imagenet.lua.
  constexpr double kExtent[3] = {0.2175, 0.0188, 0.0045};
  constexpr double kAxis[3][3] = {
      {-0.5675, 0.7192, 0.4009}, {-0.5808, -0.0045, -0.8140}, {-0.5836, -0.6948, 0.4203}};
  const NormalPair pair = Normals(draw.Bits("lighting", 0));
  const double deviates[3] = {pair.first, pair.second, Normals(draw.Bits("lighting", 1)).first};
  std::array<double, 3> colour = {};
  for (int c = 0; c < 3; ++c) {
    for (int axis = 0; axis < 3; ++axis) {
      colour[c] += 255 * deviation * deviates[axis] * kExtent[axis] * kAxis[c][axis];
    }
  }
  AddColor(colour, pixels);
}

// Ten attempts at a window that is smaller than the picture, as torchvision's RandomErasing.
void Erase(const PixelChanges& changes, const SampleDraw& draw, int64_t height, int64_t width,
           int channels, uint8_t* pixels) {
  GYRE_CHECK(static_cast<int>(changes.erased.size()) == channels);
  const auto area = static_cast<double>(height * width);
  for (uint64_t attempt = 1; attempt <= 10; ++attempt) {
    const RandomBits bits = draw.Bits("erase", attempt);
    const auto uniform = [&](int word) { return UniformDouble(bits.v[word], 0); };
    const double erased =
        area * (changes.least_area + (changes.most_area - changes.least_area) * uniform(0));
    // From least_aspect to its inverse, evenly by logarithm.
    const double aspect = std::exp(std::log(changes.least_aspect) * (1 - 2 * uniform(1)));
    const auto rows = std::nearbyint(std::sqrt(erased * aspect));
    const auto columns = std::nearbyint(std::sqrt(erased / aspect));
    if (!(rows < static_cast<double>(height) && columns < static_cast<double>(width))) continue;
    const auto window_height = static_cast<int64_t>(rows);
    const auto window_width = static_cast<int64_t>(columns);
    const int64_t top = UniformBelow(bits.v[2], height - window_height + 1);
    const int64_t left = UniformBelow(bits.v[3], width - window_width + 1);
    for (int64_t y = top; y < top + window_height; ++y) {
      uint8_t* const row = pixels + (y * width + left) * channels;
      for (int64_t x = 0; x < window_width; ++x) {
        memcpy(row + x * channels, changes.erased.data(), channels);
      }
    }
    return;
  }
}

double Degrees(const PixelChanges& changes, const SampleDraw& draw) {
  return Between(draw, "rotate", -changes.rotate, changes.rotate);
}

}  // namespace

bool PixelChanges::any() const {
  return rotate > 0 || brightness > 0 || contrast > 0 || saturation > 0 || hue > 0 || gray > 0 ||
         blur > 0 || noise > 0 || lighting > 0 || erase > 0;
}

void ChangePixels(const PixelChanges& changes, const SampleDraw& draw, int64_t height,
                  int64_t width, int channels, uint8_t* pixels) {
  GYRE_CHECK(channels == 1 || channels == 3 || channels == 4);
  const ColorPixels colors{.count = height * width, .channels = channels, .data = pixels};
  if (changes.rotate > 0) {
    Rotate(Degrees(changes, draw), TurnFilter::kLinear, height, width, channels, pixels);
  }
  JitterColors(changes, draw, colors);
  if (draw.Uniform("gray") < changes.gray) MakeGray(colors);
  if (draw.Uniform("blur") < changes.blur) {
    Blur(Between(draw, "sigma", changes.least_sigma, changes.most_sigma), height, width, channels,
         pixels);
  }
  if (changes.noise > 0) AddNoise(255 * changes.noise, draw, colors);
  if (changes.lighting > 0) ChangeLighting(changes.lighting, draw, colors);
  if (draw.Uniform("erase") < changes.erase) Erase(changes, draw, height, width, channels, pixels);
}

void ChangeMask(const PixelChanges& changes, const SampleDraw& draw, int64_t height, int64_t width,
                uint8_t* mask) {
  if (changes.rotate > 0) {
    Rotate(Degrees(changes, draw), TurnFilter::kNearest, height, width, 1, mask);
  }
}

}  // namespace gyre
