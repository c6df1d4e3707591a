#include "engine/data/pictures/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <random>
#include <thread>
#include <tuple>

#include "engine/data/pictures/pixels/axis_weights.h"
#include "tests/data/pictures/made_pictures.h"
#include "tests/data/pictures/pixels_fixture.h"
#include "tests/runtime/instruction_sets.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

constexpr ResizeFilter kFilters[] = {ResizeFilter::kAntialiased, ResizeFilter::kArea,
                                     ResizeFilter::kLinear, ResizeFilter::kNearest};

struct Case {
  int64_t height, width;
  int channels;
  int64_t to_height, to_width;
};

Bytes Resized(const Bytes& bytes, const Case& c, ResizeFilter filter, const Window& part) {
  Bytes to(part.height * part.width * c.channels + 1, 77);  // the last byte is another's
  Resize({c.height, c.width, c.channels, bytes.data()}, filter, c.to_height, c.to_width, part,
         to.data());
  EXPECT_EQ(to.back(), 77);
  to.pop_back();
  return to;
}

Bytes Resized(const Bytes& bytes, const Case& c, ResizeFilter filter) {
  return Resized(bytes, c, filter, {0, 0, c.to_height, c.to_width});
}

// Sizes up to 90, many of them small, and some heights up to 900.
Case RandomCase(std::mt19937_64& random) {
  const auto extent = [&] {
    return static_cast<int64_t>(random() % (random() % 3 == 0 ? 8 : 90) + 1);
  };
  if (random() % 8 == 0) {
    return {static_cast<int64_t>(random() % 900 + 1), extent(), 1, extent(), extent()};
  }
  constexpr int kChannels[] = {1, 3, 4};
  return {extent(), extent(), kChannels[random() % 3], extent(), extent()};
}

int LargestDifference(const Bytes& a, const Bytes& b) {
  EXPECT_EQ(a.size(), b.size());
  int largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

Bytes ByOpenCv(const Bytes& bytes, const Case& c, int interpolation) {
  Bytes to(c.to_height * c.to_width * c.channels);
  const cv::Mat from(static_cast<int>(c.height), static_cast<int>(c.width), CV_8UC(c.channels),
                     const_cast<uint8_t*>(bytes.data()));
  cv::Mat result(static_cast<int>(c.to_height), static_cast<int>(c.to_width), CV_8UC(c.channels),
                 to.data());
  cv::resize(from, result, result.size(), 0, 0, interpolation);
  return to;
}

TEST(Resize, HandComputed) {
  const Bytes four = {10, 20, 40, 255};
  const Case halved{1, 4, 1, 1, 2};
  EXPECT_EQ(Resized(four, halved, ResizeFilter::kArea), (Bytes{15, 148}));
  // Triangles of two pixels each side, at 1 and 3: shares 3/7, 3/7, 1/7 and 1/7, 3/7, 3/7.
  EXPECT_EQ(Resized(four, halved, ResizeFilter::kAntialiased), (Bytes{19, 129}));
  EXPECT_EQ(Resized(four, halved, ResizeFilter::kLinear), (Bytes{15, 148}));
  EXPECT_EQ(Resized(four, halved, ResizeFilter::kNearest), (Bytes{20, 255}));

  const Bytes two = {0, 100};
  const Case doubled{2, 1, 1, 4, 1};
  EXPECT_EQ(Resized(two, doubled, ResizeFilter::kLinear), (Bytes{0, 25, 75, 100}));
  EXPECT_EQ(Resized(two, doubled, ResizeFilter::kAntialiased), (Bytes{0, 25, 75, 100}));
  EXPECT_EQ(Resized(two, doubled, ResizeFilter::kArea), (Bytes{0, 0, 100, 100}));
  EXPECT_EQ(Resized(two, doubled, ResizeFilter::kNearest), (Bytes{0, 0, 100, 100}));

  // 2/3 of a pixel and 1/3 of the next.
  EXPECT_EQ(Resized({30, 60, 90}, {1, 3, 1, 1, 2}, ResizeFilter::kArea), (Bytes{40, 80}));
}

// What Pillow 11.3 makes of the same bytes by BILINEAR.
TEST(Resize, EqualsPillow) {
  const std::tuple<Case, Bytes> cases[] = {
      {{5, 7, 1, 3, 4}, {57, 110, 154, 104, 162, 120, 157, 155, 129, 101, 128, 146}},
      {{3, 4, 3, 5, 2}, {41,  105, 206, 125, 116, 107, 61,  140, 154, 121, 112, 132, 92,  193, 75,
                         114, 105, 170, 145, 114, 106, 107, 143, 97,  180, 62,  126, 103, 168, 49}},
      {{9, 11, 1, 2, 3}, {126, 142, 135, 145, 133, 142}},
      {{1, 6, 1, 1, 2}, {71, 103}}};
  for (const auto& [c, expected] : cases) {
    EXPECT_EQ(Resized(PatternBytes(c.height, c.width, c.channels), c, ResizeFilter::kAntialiased),
              expected);
  }
}

// Pillow's algorithm, without its loops or ours.
Bytes AlongRowsOf(const Bytes& from, int64_t rows, int64_t columns, int64_t step_row,
                  int64_t step_column, int channels, int64_t to_columns) {
  Bytes to(rows * to_columns * channels);
  const double scale = static_cast<double>(columns) / static_cast<double>(to_columns);
  const double support = std::max(scale, 1.);
  for (int64_t x = 0; x < to_columns; ++x) {
    const double center = (static_cast<double>(x) + 0.5) * scale;
    const auto first = static_cast<int64_t>(std::max(center - support + 0.5, 0.));
    const auto end = std::min(static_cast<int64_t>(center + support + 0.5), columns);
    std::vector<double> shares;
    double sum = 0;
    for (int64_t i = first; i < end; ++i) {
      shares.push_back(
          std::max(1 - std::abs((static_cast<double>(i) - center + 0.5) * (1 / support)), 0.));
      sum += shares.back();
    }
    for (int64_t y = 0; y < rows; ++y) {
      for (int c = 0; c < channels; ++c) {
        int64_t total = 1 << 21;
        for (int64_t i = first; i < end; ++i) {
          total += from[y * step_row + i * step_column + c] *
                   static_cast<int64_t>(0.5 + shares[i - first] / sum * (1 << 22));
        }
        // Transposed, so that the next call sums the other axis.
        to[(x * rows + y) * channels + c] =
            static_cast<uint8_t>(std::min<int64_t>(total >> 22, 255));
      }
    }
  }
  return to;
}

TEST(Resize, EqualsPlainLoops) {
  std::mt19937_64 random(1);
  for (int i = 0; i < (kSanitized ? 40 : 400); ++i) {
    const Case c = RandomCase(random);
    if (c.height == c.to_height && c.width == c.to_width) continue;
    const Bytes bytes = RandomBytes(c.height * c.width * c.channels, i);
    const Bytes turned = AlongRowsOf(bytes, c.height, c.width, c.width * c.channels, c.channels,
                                     c.channels, c.to_width);
    const Bytes expected = AlongRowsOf(turned, c.to_width, c.height, c.height * c.channels,
                                       c.channels, c.channels, c.to_height);
    WithEachInstructionSet([&] {
      EXPECT_EQ(Resized(bytes, c, ResizeFilter::kAntialiased), expected)
          << c.height << " " << c.width << " " << c.channels << " " << c.to_height << " "
          << c.to_width;
    });
  }
}

TEST(Resize, LinearAndAreaAreOpenCvs) {
  std::mt19937_64 random(2);
  for (int i = 0; i < (kSanitized ? 40 : 400); ++i) {
    const Case c = RandomCase(random);
    const Bytes bytes = RandomBytes(c.height * c.width * c.channels, i);
    EXPECT_LE(LargestDifference(Resized(bytes, c, ResizeFilter::kLinear),
                                ByOpenCv(bytes, c, cv::INTER_LINEAR)),
              1);
    // OpenCV interpolates along both axes if one grows.
    if (c.to_height <= c.height && c.to_width <= c.width) {
      EXPECT_LE(LargestDifference(Resized(bytes, c, ResizeFilter::kArea),
                                  ByOpenCv(bytes, c, cv::INTER_AREA)),
                1);
    }
  }
}

TEST(Resize, NearestHoldsTheCentre) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    const Case c = RandomCase(random);
    const Bytes bytes = RandomBytes(c.height * c.width * c.channels, i);
    Bytes expected;
    for (int64_t y = 0; y < c.to_height; ++y) {
      const int64_t row = (2 * y + 1) * c.height / (2 * c.to_height);
      for (int64_t x = 0; x < c.to_width; ++x) {
        const int64_t pixel = row * c.width + (2 * x + 1) * c.width / (2 * c.to_width);
        for (int k = 0; k < c.channels; ++k) expected.push_back(bytes[pixel * c.channels + k]);
      }
    }
    EXPECT_EQ(Resized(bytes, c, ResizeFilter::kNearest), expected);
  }
}

TEST(Resize, PartsArePartsOfAll) {
  std::mt19937_64 random(4);
  for (int i = 0; i < (kSanitized ? 40 : 300); ++i) {
    const Case c = RandomCase(random);
    const Bytes bytes = RandomBytes(c.height * c.width * c.channels, i);
    const Window part = RandomWindow(c.to_height, c.to_width, &random);
    for (const ResizeFilter filter : kFilters) {
      EXPECT_EQ(Resized(bytes, c, filter, part),
                Cut(Resized(bytes, c, filter), c.to_width, part, c.channels));
    }
  }
}

TEST(Resize, KeepsAConstantPicture) {
  for (const uint8_t value : {0, 1, 128, 255}) {
    for (const Case& c : {Case{1, 1, 3, 70, 41}, Case{700, 3, 4, 2, 50}, Case{33, 999, 1, 33, 1}}) {
      const Bytes bytes(c.height * c.width * c.channels, value);
      for (const ResizeFilter filter : kFilters) {
        EXPECT_EQ(Resized(bytes, c, filter), Bytes(c.to_height * c.to_width * c.channels, value));
      }
    }
  }
}

// 2^22 / 289262 is 14.5, so that weights sum up to 1.03.
TEST(Resize, SumsOfManyPixelsStayWithinAByte) {
  const Case c{1, 289262, 1, 1, 1};
  EXPECT_EQ(Resized(Bytes(c.width, 255), c, ResizeFilter::kArea), Bytes{255});
}

TEST(Resize, SameSizeIsACopy) {
  const Case c{37, 21, 3, 37, 21};
  const Bytes bytes = RandomBytes(c.height * c.width * c.channels, 1);
  for (const ResizeFilter filter : kFilters) {
    EXPECT_EQ(Resized(bytes, c, filter), bytes);
    const auto pixel = bytes.begin() + (4 * c.width + 5) * 3;
    EXPECT_EQ(Resized(bytes, c, filter, {4, 5, 1, 2}), Bytes(pixel, pixel + 6));
  }
}

// Along an axis that stays, a filter is the identity, too.
TEST(Resize, OneAxisAtATime) {
  const Case wide{1, 300, 3, 1, 40}, both{5, 300, 3, 5, 40};
  const Bytes row = RandomBytes(wide.width * 3, 1);
  Bytes rows;
  for (int y = 0; y < 5; ++y) rows.insert(rows.end(), row.begin(), row.end());
  for (const ResizeFilter filter : kFilters) {
    const Bytes resized = Resized(row, wide, filter), all = Resized(rows, both, filter);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], resized[i % resized.size()]);
  }
}

// A row or column of a million pixels, which the input enlarges a thousandfold and cuts.
TEST(Resize, ExtremeShapes) {
  constexpr int64_t kLong = 1'000'000;
  const Bytes bytes = RandomBytes(kLong, 1);
  for (const ResizeFilter filter : kFilters) {
    const Case tall{kLong, 1, 1, kLong * 224, 224}, flat{1, kLong, 1, 224, kLong * 224};
    const Window middle_down{kLong * 112, 0, 224, 224}, middle_across{0, kLong * 112, 224, 224};
    const Bytes a = Resized(bytes, tall, filter, middle_down);
    const Bytes b = Resized(bytes, flat, filter, middle_across);
    for (int64_t y = 0; y < 224; ++y) {
      for (int64_t x = 0; x < 224; ++x) ASSERT_EQ(a[y * 224 + x], b[x * 224 + y]);
    }
    Resized(bytes, {kLong, 1, 1, 20, 24}, filter);
    Resized(bytes, {1, kLong, 1, 24, 20}, filter);
  }
}

TEST(Resize, WeightsSumUpToOne) {
  for (const ResizeFilter filter : kFilters) {
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{1, 1},
                                   {1, 9},
                                   {9, 1},
                                   {500, 224},
                                   {224, 500},
                                   {4000, 7},
                                   {13, 12}}) {
      const AxisWeights axis = ResizeWeights(filter, from, to, 0, to);
      ASSERT_EQ(axis.results(), to);
      for (int64_t i = 0; i < to; ++i) {
        int64_t sum = 0;
        for (int64_t j = axis.offset[i]; j < axis.offset[i + 1]; ++j) sum += axis.weights[j];
        EXPECT_NEAR(sum, 1 << kWeightBits, axis.count(i));
        EXPECT_GE(axis.first[i], i == 0 ? 0 : axis.first[i - 1]);
        EXPECT_LE(axis.end(i), from);
      }
    }
  }
}

// A thread's memory is retained, so that only a new thread shows AddressSanitizer a row beyond it.
// Means of 31 rows fill it to the last row.
TEST(Resize, ANewThreadsMemoryIsEnough) {
  for (int64_t rows = 1; rows <= 64; ++rows) {
    const Case c = {10 * rows, 3, 1, 10, 2};
    const Bytes bytes = RandomBytes(c.height * c.width, rows);
    Bytes in_thread;
    std::thread([&] { in_thread = Resized(bytes, c, ResizeFilter::kArea); }).join();
    EXPECT_EQ(in_thread, Resized(bytes, c, ResizeFilter::kArea));
  }
}

}  // namespace
}  // namespace gyre
