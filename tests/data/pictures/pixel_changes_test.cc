#include "engine/data/pictures/pixel_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <opencv2/imgproc.hpp>
#include <random>
#include <set>

#include "engine/data/pictures/pixels/blur.h"
#include "engine/data/pictures/pixels/noise.h"
#include "engine/data/pictures/pixels/rotate.h"
#include "tests/data/pictures/made_pictures.h"
#include "tests/runtime/instruction_sets.h"

namespace gyre {
namespace {

constexpr int kDraws = 10000;

Bytes Changed(const PixelChanges& changes, const SampleDraw& draw, int64_t height, int64_t width,
              int channels, Bytes bytes) {
  ChangePixels(changes, draw, height, width, channels, bytes.data());
  return bytes;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double Deviation(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

PixelChanges Everything(int channels) {
  return {.rotate = 20,
          .brightness = 0.4,
          .contrast = 0.4,
          .saturation = 0.4,
          .hue = 0.1,
          .gray = 0.2,
          .blur = 0.5,
          .least_sigma = 0.1,
          .most_sigma = 2,
          .noise = 0.05,
          .lighting = 0.1,
          .erase = 0.5,
          .least_area = 0.02,
          .most_area = 0.33,
          .least_aspect = 0.3,
          .erased = Bytes(channels, 9)};
}

TEST(PixelChanges, NoneChangesNothing) {
  EXPECT_FALSE(PixelChanges{}.any());
  const Bytes bytes = RandomBytes(7 * 5 * 3, 1);
  EXPECT_EQ(Changed({}, {1, 2}, 7, 5, 3, bytes), bytes);
  EXPECT_TRUE(PixelChanges{.erase = 0.1}.any());
  EXPECT_TRUE(PixelChanges{.rotate = 0.1}.any());
}

TEST(PixelChanges, SameDrawSameBits) {
  for (const int channels : {1, 3, 4}) {
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {31, 17}}) {
      const Bytes bytes = RandomBytes(height * width * channels, 1);
      const PixelChanges changes = Everything(channels);
      for (int64_t position = 0; position < 20; ++position) {
        SetInstructionSet(InstructionSet::kGeneric);
        const Bytes expected = Changed(changes, {3, position}, height, width, channels, bytes);
        WithEachInstructionSet([&] {
          EXPECT_EQ(Changed(changes, {3, position}, height, width, channels, bytes), expected);
        });
      }
    }
  }
  const Bytes bytes = RandomBytes(31 * 17 * 3, 1);
  EXPECT_NE(Changed(Everything(3), {3, 4}, 31, 17, 3, bytes),
            Changed(Everything(3), {3, 5}, 31, 17, 3, bytes));
  EXPECT_NE(Changed(Everything(3), {3, 4}, 31, 17, 3, bytes),
            Changed(Everything(3), {4, 4}, 31, 17, 3, bytes));
}

// A change that is added leaves the draws of the others as they are.
TEST(PixelChanges, DrawsAreIndependent) {
  const Bytes bytes = RandomBytes(20 * 20 * 3, 1);
  PixelChanges changes{
      .erase = 1, .least_area = 0.1, .most_area = 0.4, .least_aspect = 0.5, .erased = {1, 2, 3}};
  const Bytes erased = Changed(changes, {1, 1}, 20, 20, 3, bytes);
  changes.brightness = 0.9;
  const Bytes both = Changed(changes, {1, 1}, 20, 20, 3, bytes);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const bool is_erased = erased[i] == 1 && erased[i + 1] == 2 && erased[i + 2] == 3;
    if (!is_erased) continue;
    EXPECT_EQ(Bytes(both.begin() + i, both.begin() + i + 3), (Bytes{1, 2, 3}));
  }
  EXPECT_NE(both, erased);
}

TEST(PixelChanges, BrightnessIsEven) {
  std::vector<double> factors;
  for (int64_t i = 0; i < kDraws; ++i) {
    factors.push_back(Changed({.brightness = 0.4}, {1, i}, 1, 1, 1, {100})[0] / 100.);
  }
  EXPECT_NEAR(*std::ranges::min_element(factors), 0.6, 0.0101);
  EXPECT_NEAR(*std::ranges::max_element(factors), 1.4, 0.0101);
  // Factors are rounded down to hundredths.
  EXPECT_NEAR(Mean(factors), 1 - 0.005, 4 * 0.8 / std::sqrt(12. * kDraws));
  EXPECT_NEAR(Deviation(factors), 0.8 / std::sqrt(12), 0.005);
  // No factor is below 0.
  factors.clear();
  for (int64_t i = 0; i < kDraws; ++i) {
    factors.push_back(Changed({.brightness = 2}, {1, i}, 1, 1, 1, {50})[0] / 50.);
  }
  EXPECT_NEAR(Mean(factors), 1.5 - 0.01, 4 * 3 / std::sqrt(12. * kDraws));
}

// Brightness and contrast do not commute, so the result tells which came first.
TEST(PixelChanges, JittersInRandomOrder) {
  const PixelChanges changes{.brightness = 0.5, .contrast = 0.5};
  int brightness_first = 0, contrast_first = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const SampleDraw draw{1, i};
    const double brightness = 0.5 + draw.Uniform("brightness");
    const double contrast = 0.5 + draw.Uniform("contrast");
    const Bytes bytes = {0, 40, 90, 250};
    const auto changed = [&](bool first) {
      Bytes copy = bytes;
      const ColorPixels pixels{4, 1, copy.data()};
      if (first) ChangeBrightness(brightness, pixels);
      ChangeContrast(contrast, pixels);
      if (!first) ChangeBrightness(brightness, pixels);
      return copy;
    };
    const Bytes result = Changed(changes, draw, 2, 2, 1, bytes);
    const Bytes a = changed(true), b = changed(false);
    ASSERT_TRUE(result == a || result == b);
    if (a != b) ++(result == a ? brightness_first : contrast_first);
  }
  EXPECT_GT(brightness_first + contrast_first, 500);
  EXPECT_NEAR(brightness_first, contrast_first, 4 * std::sqrt(brightness_first + contrast_first));
}

TEST(PixelChanges, GrayIsSometimes) {
  int gray = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Bytes changed = Changed({.gray = 0.2}, {1, i}, 1, 1, 3, {200, 100, 50});
    if (changed == Bytes{124, 124, 124}) ++gray;
  }
  EXPECT_NEAR(gray, 0.2 * kDraws, 4 * std::sqrt(0.2 * 0.8 * kDraws));
}

TEST(PixelChanges, LightingIsNormal) {
  // Two deviations of the first axis: 255 * 0.2175 * 0.5675 = 31.5 for red, and little else.
  std::vector<double> red, blue;
  double product = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Bytes changed = Changed({.lighting = 0.5}, {1, i}, 1, 1, 3, {128, 128, 128});
    red.push_back(changed[0] - 128.);
    blue.push_back(changed[2] - 128.);
    product += red.back() * blue.back() / kDraws;
  }
  const auto deviation = [](double a, double b, double c) {
    a *= 0.2175, b *= 0.0188, c *= 0.0045;
    return 127.5 * std::sqrt(a * a + b * b + c * c);
  };
  const double red_deviation = deviation(-0.5675, 0.7192, 0.4009);
  const double blue_deviation = deviation(-0.5836, -0.6948, 0.4203);
  EXPECT_NEAR(Mean(red), 0, 4 * red_deviation / std::sqrt(kDraws));
  EXPECT_NEAR(Deviation(red), red_deviation, 0.04 * red_deviation);
  EXPECT_NEAR(Deviation(blue), blue_deviation, 0.04 * blue_deviation);
  EXPECT_GT(product, 0.9 * red_deviation * blue_deviation);  // nearly one axis
  EXPECT_EQ(Changed({.lighting = 0.5}, {1, 1}, 1, 1, 1, {128}), Bytes{128});
}

// The window that was erased, or one of no area.
Window Erased(const Bytes& bytes, int64_t height, int64_t width) {
  int64_t top = height, left = width, bottom = 0, right = 0, count = 0;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      if (bytes[y * width + x] == 0) continue;
      top = std::min(top, y), bottom = std::max(bottom, y + 1);
      left = std::min(left, x), right = std::max(right, x + 1);
      ++count;
    }
  }
  if (count == 0) return {};
  EXPECT_EQ(count, (bottom - top) * (right - left));
  return {top, left, bottom - top, right - left};
}

TEST(PixelChanges, ErasesWindows) {
  constexpr int64_t kSide = 50;
  const PixelChanges changes{
      .erase = 0.5, .least_area = 0.02, .most_area = 0.2, .least_aspect = 0.4, .erased = {1}};
  std::vector<double> shares, logarithms, tops, lefts, products;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Window w =
        Erased(Changed(changes, {1, i}, kSide, kSide, 1, Bytes(kSide * kSide)), kSide, kSide);
    if (w.height == 0) continue;
    ASSERT_TRUE(w.height < kSide && w.width < kSide);
    shares.push_back(static_cast<double>(w.height * w.width) / (kSide * kSide));
    logarithms.push_back(std::log(static_cast<double>(w.height) / static_cast<double>(w.width)));
    tops.push_back(static_cast<double>(w.top) / static_cast<double>(kSide - w.height));
    lefts.push_back(static_cast<double>(w.left) / static_cast<double>(kSide - w.width));
  }
  for (size_t i = 0; i < tops.size(); ++i) products.push_back(tops[i] * lefts[i]);
  const auto count = static_cast<double>(shares.size());
  EXPECT_NEAR(count, kDraws / 2., 4 * std::sqrt(kDraws / 4.));
  EXPECT_NEAR(Mean(shares), 0.11, 4 * 0.18 / std::sqrt(12 * count) + 0.001);
  EXPECT_NEAR(Mean(logarithms), 0, 4 * 2 * std::log(2.5) / std::sqrt(12 * count));
  EXPECT_NEAR(Deviation(logarithms), 2 * std::log(2.5) / std::sqrt(12), 0.02);
  EXPECT_NEAR(Mean(tops), 0.5, 4 / std::sqrt(12 * count));
  EXPECT_NEAR(Mean(lefts), 0.5, 4 / std::sqrt(12 * count));
  EXPECT_NEAR(Mean(products), 0.25, 0.02);  // independent: a third if they were equal
}

TEST(PixelChanges, ErasesEachChannel) {
  const PixelChanges changes{
      .erase = 1, .least_area = 0.2, .most_area = 0.3, .least_aspect = 0.5, .erased = {1, 2, 3, 4}};
  const Bytes changed = Changed(changes, {1, 1}, 9, 8, 4, Bytes(9 * 8 * 4));
  std::set<Bytes> pixels;
  for (size_t i = 0; i < changed.size(); i += 4) {
    pixels.insert(Bytes(changed.begin() + i, changed.begin() + i + 4));
  }
  EXPECT_EQ(pixels, (std::set<Bytes>{{0, 0, 0, 0}, {1, 2, 3, 4}}));
  // No window is smaller than a picture of one row.
  EXPECT_EQ(Changed(changes, {1, 1}, 1, 8, 4, Bytes(32)), Bytes(32));
}

TEST(PixelChanges, MasksTurnAlike) {
  // A cross of 200 on 0, off the centre, of class 1.
  constexpr int64_t kHeight = 41, kWidth = 33;
  Bytes picture(kHeight * kWidth), mask(kHeight * kWidth);
  for (int64_t y = 5; y < 30; ++y) {
    for (int64_t x = 4; x < 22; ++x) {
      if ((y < 10 || y > 14) && x > 9) continue;
      picture[y * kWidth + x] = 200;
      mask[y * kWidth + x] = 1;
    }
  }
  int moved = 0;
  for (int64_t i = 0; i < 50; ++i) {
    Bytes turned = picture, turned_mask = mask;
    ChangePixels({.rotate = 180}, {1, i}, kHeight, kWidth, 1, turned.data());
    ChangeMask({.rotate = 180}, {1, i}, kHeight, kWidth, turned_mask.data());
    moved += turned_mask != mask;
    for (int64_t j = 0; j < kHeight * kWidth; ++j) {
      // The nearest of four pixels has a share of a quarter at least.
      ASSERT_LE(turned_mask[j], 1);
      if (turned[j] > 160) {
        ASSERT_EQ(turned_mask[j], 1);
      }
      if (turned[j] < 40) {
        ASSERT_EQ(turned_mask[j], 0);
      }
    }
  }
  EXPECT_GE(moved, 49);
}

TEST(PixelChanges, RotatesEvenly) {
  // The first row's middle pixel turns to where its angle says.
  constexpr int64_t kSide = 101;
  std::vector<double> degrees;
  Bytes mark(kSide * kSide);
  for (int64_t y = 0; y < 3; ++y) {
    for (int64_t x = 49; x < 52; ++x) mark[y * kSide + x] = 255;
  }
  for (int64_t i = 0; i < 1000; ++i) {
    const Bytes turned = Changed({.rotate = 30}, {1, i}, kSide, kSide, 1, mark);
    double sum = 0, x_sum = 0, y_sum = 0;
    for (int64_t j = 0; j < kSide * kSide; ++j) {
      sum += turned[j];
      x_sum += turned[j] * static_cast<double>(j % kSide - 50);
      y_sum += turned[j] * static_cast<double>(50 - j / kSide);
    }
    ASSERT_GT(sum, 0);
    degrees.push_back(std::atan2(-x_sum / sum, y_sum / sum) * 180 / M_PI);  // counter-clockwise
    const SampleDraw draw{1, i};
    EXPECT_NEAR(degrees.back(), -30 + 60 * draw.Uniform("rotate"), 0.1);
  }
  EXPECT_NEAR(Mean(degrees), 0, 4 * 60 / std::sqrt(12. * 1000));
  EXPECT_NEAR(Deviation(degrees), 60 / std::sqrt(12), 1);
}

TEST(Rotate, RightAngles) {
  Bytes bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  Rotate(90, TurnFilter::kLinear, 3, 3, 1, bytes.data());
  EXPECT_EQ(bytes, (Bytes{3, 6, 9, 2, 5, 8, 1, 4, 7}));
  Rotate(-90, TurnFilter::kNearest, 3, 3, 1, bytes.data());
  EXPECT_EQ(bytes, (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  Bytes wide = {1, 2, 3, 4};
  Rotate(180, TurnFilter::kNearest, 2, 2, 1, wide.data());
  EXPECT_EQ(wide, (Bytes{4, 3, 2, 1}));
  Bytes one = {10, 20, 30};
  Rotate(45, TurnFilter::kLinear, 1, 1, 3, one.data());
  EXPECT_EQ(one, (Bytes{10, 20, 30}));
}

TEST(Rotate, HasOpenCvsBits) {
  std::mt19937_64 random(21);
  std::uniform_real_distribution<double> degrees(-400, 400);
  for (int i = 0; i < 300; ++i) {
    const int height = 1 + static_cast<int>(random() % 60),
              width = 1 + static_cast<int>(random() % 60);
    const int channels = std::array{1, 3, 4}[random() % 3];
    const bool nearest = random() % 2 == 0;
    const double angle = i % 10 == 0 ? 45. * static_cast<double>(random() % 9) : degrees(random);
    Bytes own = RandomBytes(height * width * channels, random());
    const cv::Mat picture(height, width, CV_8UC(channels), own.data());
    cv::Mat expected;
    cv::warpAffine(picture, expected,
                   cv::getRotationMatrix2D({(width - 1) / 2.f, (height - 1) / 2.f}, angle, 1),
                   picture.size(), nearest ? cv::INTER_NEAREST : cv::INTER_LINEAR);
    Rotate(angle, nearest ? TurnFilter::kNearest : TurnFilter::kLinear, height, width, channels,
           own.data());
    ASSERT_EQ(own, Bytes(expected.datastart, expected.dataend))
        << height << " x " << width << " x " << channels << " by " << angle << ", nearest "
        << nearest;
  }
}

TEST(Rotate, TurnsSidesOfAnyLength) {
  const Bytes bytes = RandomBytes(70000, 1);
  for (const bool wide : {false, true}) {
    Bytes turned = bytes;
    Rotate(180, TurnFilter::kLinear, wide ? 1 : 70000, wide ? 70000 : 1, 1, turned.data());
    EXPECT_EQ(turned, Bytes(bytes.rbegin(), bytes.rend()));
  }
}

TEST(Blur, HandComputed) {
  // sigma 1: e^-0.5 = 0.6065, e^-2 = 0.1353, e^-4.5 = 0.0111, so 0.3991 in the middle of a row and
  // 0.3991^2 in a picture's.
  Bytes bytes(9 * 9);
  bytes[4 * 9 + 4] = 200;
  Blur(1, 9, 9, 1, bytes.data());
  EXPECT_EQ(bytes[4 * 9 + 4], 32);  // 80 along the row, then 31.9
  EXPECT_EQ(bytes[4 * 9 + 5], 19);  // 48, then 19.2
  EXPECT_EQ(bytes[4 * 9 + 8], 0);
  // At the edge the kernel's other half mirrors, so 0.6065 weighs twice.
  Bytes row = {100, 0, 0, 0, 0, 0, 0, 0};
  Blur(1, 1, 8, 1, row.data());
  EXPECT_EQ(Bytes(row.begin(), row.begin() + 4), (Bytes{40, 24, 5, 0}));
}

TEST(Blur, EqualsPlainSums) {
  for (const auto& [height, width, channels] :
       {std::tuple<int64_t, int64_t, int>{1, 1, 3}, {2, 3, 1}, {5, 40, 4}, {70, 33, 3}}) {
    const Bytes bytes = RandomBytes(height * width * channels, 1);
    for (const double sigma : {0.1, 0.5, 1.3, 6.0}) {
      Bytes blurred = bytes;
      Blur(sigma, height, width, channels, blurred.data());
      const auto radius = static_cast<int64_t>(std::ceil(3 * sigma));
      double all = 0;
      for (int64_t x = -radius; x <= radius; ++x) {
        all += std::exp(-0.5 * static_cast<double>(x * x) / (sigma * sigma));
      }
      const auto mirrored = [](int64_t x, int64_t size) {
        while (x < 0 || x >= size) x = size == 1 ? 0 : x < 0 ? -x : 2 * (size - 1) - x;
        return x;
      };
      for (int64_t i = 0; i < static_cast<int64_t>(bytes.size()); ++i) {
        const int64_t c = i % channels, x = i / channels % width, y = i / channels / width;
        double sum = 0;
        for (int64_t dy = -radius; dy <= radius; ++dy) {
          for (int64_t dx = -radius; dx <= radius; ++dx) {
            const int64_t pixel = mirrored(y + dy, height) * width + mirrored(x + dx, width);
            sum += bytes[pixel * channels + c] *
                   std::exp(-0.5 * static_cast<double>(dx * dx + dy * dy) / (sigma * sigma));
          }
        }
        ASSERT_NEAR(blurred[i], sum / (all * all), 1.01) << sigma << " " << i;
      }
    }
  }
}

TEST(PixelChanges, BlursByProbability) {
  Bytes bytes(9 * 9);
  bytes[4 * 9 + 4] = 255;
  const PixelChanges changes{.blur = 0.3, .least_sigma = 0.5, .most_sigma = 1};
  int blurred = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const int middle = Changed(changes, {1, i}, 9, 9, 1, bytes)[4 * 9 + 4];
    if (middle == 255) continue;
    ++blurred;
    // 0.3991^2 for sigma 1, 0.7865^2 for 0.5.
    EXPECT_TRUE(middle >= 39 && middle <= 159) << middle;
  }
  EXPECT_NEAR(blurred, 300, 4 * std::sqrt(0.3 * 0.7 * 1000));
}

TEST(Noise, IsNormal) {
  constexpr int64_t kCount = 200000;
  Bytes bytes(kCount, 128);
  AddNoise(10, {1, 2}, {kCount, 1, bytes.data()});
  std::vector<double> noise;
  std::map<int, double> below, products;
  for (int64_t i = 0; i < kCount; ++i) {
    noise.push_back(bytes[i] - 128.);
    for (const int z : {-20, -10, 0, 5, 20}) below[z] += noise.back() < z + 0.5 ? 1. / kCount : 0;
    for (const int distance : {1, 2, 3, 64, 128, 256, 512}) {
      if (i >= distance) products[distance] += noise[i] * noise[i - distance] / kCount;
    }
  }
  EXPECT_NEAR(Mean(noise), 0, 4 * 10 / std::sqrt(kCount));
  EXPECT_NEAR(Deviation(noise), std::sqrt(100 + 1. / 12), 0.1);
  for (const auto& [distance, product] : products) {
    EXPECT_NEAR(product, 0, 5 * 100 / std::sqrt(kCount)) << distance;
  }
  for (const auto& [z, share] : below) {
    EXPECT_NEAR(share, std::erfc(-(z + 0.5) / 10 / std::sqrt(2)) / 2, 0.005) << z;
  }
}

TEST(Noise, BoundsAndAlpha) {
  for (const int channels : {1, 3, 4}) {
    for (const int64_t count : {0, 1, 5, 511, 512, 513}) {
      Bytes bytes(count * channels + 1, 255);
      AddNoise(256, {1, 2}, {count, channels, bytes.data()});
      EXPECT_EQ(bytes.back(), 255);
      if (channels != 4) continue;
      for (int64_t i = 3; i < count * 4; i += 4) ASSERT_EQ(bytes[i], 255);
    }
  }
  Bytes bytes = RandomBytes(1000, 1);
  const Bytes before = bytes;
  AddNoise(0, {1, 2}, {1000, 1, bytes.data()});
  EXPECT_EQ(bytes, before);
  // A picture's noise begins with that of a smaller one.
  Bytes few(600, 128), many(3000, 128);
  AddNoise(9, {1, 2}, {600, 1, few.data()});
  AddNoise(9, {1, 2}, {1000, 3, many.data()});
  many.resize(600);
  EXPECT_EQ(few, many);
}

}  // namespace
}  // namespace gyre
