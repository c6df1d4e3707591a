#include "engine/data/pictures/pixels/color_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/data/pictures/made_pictures.h"
#include "tests/runtime/instruction_sets.h"

namespace gyre {
namespace {

template <typename Change>
Bytes Changed(Bytes bytes, int channels, const Change& change) {
  const auto count = static_cast<int64_t>(bytes.size()) / channels;
  bytes.push_back(77);  // another's
  change(ColorPixels{count, channels, bytes.data()});
  EXPECT_EQ(bytes.back(), 77);
  bytes.pop_back();
  return bytes;
}

Bytes Brightness(double factor, int channels, const Bytes& bytes) {
  return Changed(bytes, channels, [&](const ColorPixels& p) { ChangeBrightness(factor, p); });
}
Bytes Contrast(double factor, int channels, const Bytes& bytes) {
  return Changed(bytes, channels, [&](const ColorPixels& p) { ChangeContrast(factor, p); });
}
Bytes Saturation(double factor, int channels, const Bytes& bytes) {
  return Changed(bytes, channels, [&](const ColorPixels& p) { ChangeSaturation(factor, p); });
}
Bytes Hue(double turns, int channels, const Bytes& bytes) {
  return Changed(bytes, channels, [&](const ColorPixels& p) { ChangeHue(turns, p); });
}
Bytes Gray(int channels, const Bytes& bytes) {
  return Changed(bytes, channels, [&](const ColorPixels& p) { MakeGray(p); });
}
Bytes Added(const std::array<double, 3>& colour, int channels, const Bytes& bytes) {
  return Changed(bytes, channels, [&](const ColorPixels& p) { AddColor(colour, p); });
}

TEST(ColorChanges, BrightnessRoundsDown) {
  EXPECT_EQ(Brightness(1.5, 3, {0, 1, 100, 169, 170, 255}), (Bytes{0, 1, 150, 253, 255, 255}));
  EXPECT_EQ(Brightness(0, 1, {7, 255}), (Bytes{0, 0}));
  EXPECT_EQ(Brightness(0.5, 4, {10, 20, 31, 9}), (Bytes{5, 10, 15, 9}));
}

TEST(ColorChanges, ContrastMovesFromTheMean) {
  // The mean is 100.
  EXPECT_EQ(Contrast(0.5, 1, {50, 150}), (Bytes{75, 125}));
  EXPECT_EQ(Contrast(2, 1, {20, 180}), (Bytes{0, 255}));
  // Grey levels 0.2989 * 200 = 59 and 0.587 * 100 = 58, so a mean of 58.5.
  EXPECT_EQ(Contrast(0.5, 3, {200, 0, 0, 0, 100, 0}), (Bytes{129, 29, 29, 29, 79, 29}));
  EXPECT_EQ(Contrast(0.5, 4, {200, 0, 0, 5, 0, 100, 0, 6}), (Bytes{129, 29, 29, 5, 29, 79, 29, 6}));
}

TEST(ColorChanges, SaturationMovesFromGrey) {
  // The grey level of (200, 100, 50) is 59.78 + 58.7 + 5.7 = 124.
  EXPECT_EQ(Saturation(0.5, 3, {200, 100, 50}), (Bytes{162, 112, 87}));
  EXPECT_EQ(Saturation(0, 4, {200, 100, 50, 9}), (Bytes{124, 124, 124, 9}));
  EXPECT_EQ(Saturation(2, 3, {200, 100, 50}), (Bytes{255, 76, 0}));
  EXPECT_EQ(Saturation(0, 1, {200, 100}), (Bytes{200, 100}));
}

TEST(ColorChanges, HueTurnsByThirds) {
  EXPECT_EQ(Hue(1. / 3, 3, {200, 100, 50}), (Bytes{50, 200, 100}));
  EXPECT_EQ(Hue(-1. / 3, 3, {200, 100, 50}), (Bytes{100, 50, 200}));
  EXPECT_EQ(Hue(0.5, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255}),
            (Bytes{0, 255, 255, 255, 0, 255, 255, 255, 0}));
  EXPECT_EQ(Hue(-0.5, 4, {255, 0, 0, 1}), (Bytes{0, 255, 255, 1}));
  EXPECT_EQ(Hue(1. / 6, 3, {255, 0, 0}), (Bytes{255, 255, 0}));
  EXPECT_EQ(Hue(0.25, 3, {9, 9, 9}), (Bytes{9, 9, 9}));
  EXPECT_EQ(Hue(0.25, 1, {9, 10}), (Bytes{9, 10}));
}

TEST(ColorChanges, GrayIsTorchvisions) {
  // 0.9999 of white is 254.97.
  EXPECT_EQ(Gray(3, {255, 255, 255, 200, 100, 50}), (Bytes{254, 254, 254, 124, 124, 124}));
  EXPECT_EQ(Gray(4, {200, 100, 50, 3}), (Bytes{124, 124, 124, 3}));
  EXPECT_EQ(Gray(1, {200}), (Bytes{200}));
}

TEST(ColorChanges, AddsRounded) {
  EXPECT_EQ(Added({0.4, 0.5, -0.6}, 3, {10, 10, 10}), (Bytes{10, 11, 9}));
  EXPECT_EQ(Added({-300, 300, 0}, 4, {10, 10, 10, 10}), (Bytes{0, 255, 10, 10}));
  EXPECT_EQ(Added({5, 5, 5}, 1, {10}), (Bytes{10}));
}

TEST(ColorChanges, NothingChangesNothing) {
  for (const int channels : {1, 3, 4}) {
    for (const int64_t count : {0, 1, 2, 3, 4, 5, 63, 1001}) {
      const Bytes bytes = RandomBytes(count * channels, count);
      EXPECT_EQ(Brightness(1, channels, bytes), bytes);
      EXPECT_EQ(Contrast(1, channels, bytes), bytes);
      EXPECT_EQ(Saturation(1, channels, bytes), bytes);
      EXPECT_EQ(Hue(0, channels, bytes), bytes);
      EXPECT_EQ(Added({0, 0, 0}, channels, bytes), bytes);
    }
  }
}

// Changes one pixel after the other, as the formulas of HSV have it.
void TurnPlainly(double turns, uint8_t* pixel) {
  const double red = pixel[0], green = pixel[1], blue = pixel[2];
  const double value = std::max({red, green, blue}), least = std::min({red, green, blue});
  const double chroma = value - least;
  if (chroma == 0) return;
  double hue = value == red     ? (green - blue) / chroma
               : value == green ? (blue - red) / chroma + 2
                                : (red - green) / chroma + 4;
  hue = std::fmod(hue + 6 * turns + 12, 6);
  const auto sector = static_cast<int>(hue);
  const double part = hue - sector, p = least, q = value - chroma * part,
               t = value - chroma * (1 - part);
  const double table[6][3] = {{value, t, p}, {q, value, p}, {p, value, t},
                              {p, q, value}, {t, p, value}, {value, p, q}};
  for (int c = 0; c < 3; ++c) pixel[c] = static_cast<uint8_t>(table[sector][c] * 255.999 / 255);
}

TEST(ColorChanges, HueEqualsPlainFormulas) {
  const Bytes bytes = RandomBytes(3 * 5003, 1);
  for (const double turns : {-0.5, -0.37, -0.01, 0.003, 0.2, 0.5}) {
    const Bytes turned = Hue(turns, 3, bytes);
    for (size_t i = 0; i < bytes.size(); i += 3) {
      Bytes pixel(bytes.begin() + i, bytes.begin() + i + 3);
      TurnPlainly(turns, pixel.data());
      for (int c = 0; c < 3; ++c) ASSERT_NEAR(turned[i + c], pixel[c], 1) << turns << " " << i;
    }
  }
}

// Pixels of four channels are changed one by one, those of three in groups of four.
TEST(ColorChanges, ChannelsAndSetsAgree) {
  for (const int64_t count : {1, 2, 3, 4, 7, 500, 1027}) {
    const Bytes three = RandomBytes(count * 3, count);
    Bytes four;
    for (int64_t i = 0; i < count; ++i) {
      four.insert(four.end(), {three[3 * i], three[3 * i + 1], three[3 * i + 2], 200});
    }
    const auto all = [](int channels, Bytes bytes) {
      bytes = Brightness(1.3, channels, bytes);
      bytes = Contrast(0.7, channels, bytes);
      bytes = Saturation(1.8, channels, bytes);
      bytes = Hue(0.13, channels, bytes);
      bytes = Added({3.3, -4.2, 8}, channels, bytes);
      return bytes;
    };
    SetInstructionSet(InstructionSet::kGeneric);
    const Bytes expected = all(3, three);
    WithEachInstructionSet([&] {
      EXPECT_EQ(all(3, three), expected);
      const Bytes changed = all(4, four);
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(changed[4 * i + 3], 200);
        for (int c = 0; c < 3; ++c) ASSERT_EQ(changed[4 * i + c], expected[3 * i + c]);
      }
    });
  }
}

}  // namespace
}  // namespace gyre
