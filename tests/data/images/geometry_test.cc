// To what size a picture is scaled, and which part of it is the input: sets/picture_input.h.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "engine/data/sets/picture_input.h"

namespace gyre {
namespace {

using Numbers = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // size, then top and left

Numbers Of(int64_t height, int64_t width, const InputFit& fit) {
  const absl::StatusOr<Geometry> geometry = GeometryOf(height, width, fit, std::nullopt);
  if (!geometry.ok()) {
    ADD_FAILURE() << geometry.status();
    return {};
  }
  EXPECT_EQ(geometry->source.top, 0);
  EXPECT_EQ(geometry->source.left, 0);
  EXPECT_EQ(geometry->source.height, height);
  EXPECT_EQ(geometry->source.width, width);
  return {geometry->height, geometry->width, geometry->top, geometry->left};
}

std::string Refusal(int64_t height, int64_t width, const InputFit& fit) {
  const absl::StatusOr<Geometry> geometry = GeometryOf(height, width, fit, std::nullopt);
  EXPECT_EQ(geometry.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(geometry.status().message());
}

// What torchvision's Resize(256) and CenterCrop(224) do.  int(256 * 500 / 375) is 341.
TEST(Geometry, ShortestThenCentre) {
  const InputFit fit{.height = 224, .width = 224, .shortest = 256};
  EXPECT_EQ(Of(375, 500, fit), Numbers(256, 341, 16, 58));  // round(117 / 2.0) is 58
  EXPECT_EQ(Of(500, 375, fit), Numbers(341, 256, 58, 16));
  EXPECT_EQ(Of(256, 256, fit), Numbers(256, 256, 16, 16));
  EXPECT_EQ(Of(1, 1, fit), Numbers(256, 256, 16, 16));
  EXPECT_EQ(Of(1, 3, fit), Numbers(256, 768, 16, 272));
  // Halves are rounded to even: 0.5 to 0, 1.5 to 2, 2.5 to 2, 3.5 to 4.
  EXPECT_EQ(Of(9, 9, {.height = 8, .width = 6, .shortest = 9}), Numbers(9, 9, 0, 2));
  EXPECT_EQ(Of(9, 9, {.height = 4, .width = 2, .shortest = 9}), Numbers(9, 9, 2, 4));
}

TEST(Geometry, JustCovered) {
  const InputFit square{.height = 224, .width = 224};
  EXPECT_EQ(Of(375, 500, square), Numbers(224, 298, 0, 37));
  EXPECT_EQ(Of(500, 375, square), Numbers(298, 224, 37, 0));
  EXPECT_EQ(Of(224, 224, square), Numbers(224, 224, 0, 0));
  EXPECT_EQ(Of(10, 10, {.height = 20, .width = 30}), Numbers(30, 30, 5, 0));
  EXPECT_EQ(Of(3, 2, {.height = 1, .width = 1}), Numbers(1, 1, 0, 0));
}

TEST(Geometry, CoversForAllSizes) {
  for (int64_t height = 1; height < 40; ++height) {
    for (int64_t width = 1; width < 40; ++width) {
      for (const InputFit& fit : {InputFit{.height = 7, .width = 11}, {.height = 13, .width = 1}}) {
        const auto [to_height, to_width, top, left] = Of(height, width, fit);
        EXPECT_TRUE(to_height == fit.height || to_width == fit.width);
        EXPECT_TRUE(top >= 0 && top + fit.height <= to_height);
        EXPECT_TRUE(left >= 0 && left + fit.width <= to_width);
        // The aspect ratio is kept but for less than a pixel.
        EXPECT_LT(std::abs(static_cast<double>(to_height * width - to_width * height)),
                  static_cast<double>(std::max(width, height)));
      }
    }
  }
}

TEST(Geometry, StretchAndAsIs) {
  EXPECT_EQ(Of(3, 500, {.height = 20, .width = 10, .fit = PictureFit::kStretch}),
            Numbers(20, 10, 0, 0));
  EXPECT_EQ(Of(20, 10, {.height = 20, .width = 10, .fit = PictureFit::kAsIs}),
            Numbers(20, 10, 0, 0));
}

TEST(Geometry, LetterboxIsCentred) {
  const InputFit fit{.height = 100, .width = 100, .fit = PictureFit::kLetterbox};
  EXPECT_EQ(Of(375, 500, fit), Numbers(75, 100, -12, 0));  // 12 rows above, 13 below
  EXPECT_EQ(Of(500, 375, fit), Numbers(100, 75, 0, -12));
  EXPECT_EQ(Of(50, 50, fit), Numbers(100, 100, 0, 0));
  EXPECT_EQ(Of(3, 2, fit), Numbers(100, 67, 0, -16));      // 66.7 to the nearest
  EXPECT_EQ(Of(1, 100000, fit), Numbers(1, 100, -49, 0));  // never 0 rows
  EXPECT_EQ(Of(100000, 1, fit), Numbers(100, 1, 0, -49));
}

TEST(Geometry, Errors) {
  EXPECT_EQ(Refusal(30, 20, {.height = 28, .width = 28, .fit = PictureFit::kAsIs}),
            "has 30 x 20 pixels (height x width); expected the input's 28 x 28; use fit: CROP, "
            "STRETCH or LETTERBOX to resize pictures");
  EXPECT_EQ(Refusal(60, 80, {.height = 28, .width = 48, .shortest = 32}),
            "has 60 x 80 pixels (height x width), resized to 32 x 42 by shortest: 32; expected the "
            "input's 28 x 48 at least; set a larger shortest, or none");
  EXPECT_EQ(Refusal(80, 60, {.height = 48, .width = 28, .shortest = 32}),
            "has 80 x 60 pixels (height x width), resized to 42 x 32 by shortest: 32; expected the "
            "input's 48 x 28 at least; set a larger shortest, or none");
}

InputFit Random(const RandomCrop& crop) {
  return {.height = 22, .width = 24, .fit = PictureFit::kLetterbox, .random = crop};
}

TEST(Geometry, RandomCropNeedsADraw) { EXPECT_EQ(Of(10, 10, Random({})), Numbers(22, 22, 0, -1)); }

TEST(Geometry, RandomCropIsAFunctionOfTheDraw) {
  const auto window = [](uint64_t seed, int64_t position) {
    const Window w = GeometryOf(375, 500, Random({}), SampleDraw{seed, position})->source;
    return Numbers(w.top, w.left, w.height, w.width);
  };
  EXPECT_EQ(window(1, 5), window(1, 5));
  EXPECT_NE(window(1, 5), window(1, 6));
  EXPECT_NE(window(1, 5), window(2, 5));
}

// Shares of area are even from 0.08 to 1, aspect ratios by logarithm from 3/4 to 4/3.  A square
// picture refuses the windows that are larger than it, which lowers the mean area.
TEST(Geometry, RandomCropsDistribution) {
  constexpr int kDraws = 10000;
  constexpr int64_t kSide = 1000;
  double area = 0, logarithm = 0, top = 0, left = 0, both = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Geometry geometry =
        *GeometryOf(kSide, kSide, Random({.least_area = 0.1, .most_area = 0.5}), SampleDraw{7, i});
    EXPECT_EQ(Numbers(geometry.height, geometry.width, geometry.top, geometry.left),
              Numbers(22, 24, 0, 0));
    const Window& w = geometry.source;
    ASSERT_TRUE(w.top >= 0 && w.left >= 0 && w.height > 0 && w.width > 0);
    ASSERT_TRUE(w.top + w.height <= kSide && w.left + w.width <= kSide);
    const double share = static_cast<double>(w.height * w.width) / (kSide * kSide);
    const double aspect = static_cast<double>(w.width) / static_cast<double>(w.height);
    ASSERT_TRUE(share > 0.099 && share < 0.501);
    ASSERT_TRUE(aspect > 0.747 && aspect < 1.339);
    const double down = static_cast<double>(w.top) / static_cast<double>(kSide - w.height);
    const double right = static_cast<double>(w.left) / static_cast<double>(kSide - w.width);
    area += share / kDraws;
    logarithm += std::log(aspect) / kDraws;
    top += down / kDraws;
    left += right / kDraws;
    both += down * right / kDraws;
  }
  // Four deviations of a mean of 10,000: of an even distribution's width / sqrt(12).
  EXPECT_NEAR(area, 0.3, 4 * 0.4 / std::sqrt(12. * kDraws));
  EXPECT_NEAR(logarithm, 0, 4 * 2 * std::log(4. / 3) / std::sqrt(12. * kDraws));
  EXPECT_NEAR(top, 0.5, 4 / std::sqrt(12. * kDraws));
  EXPECT_NEAR(left, 0.5, 4 / std::sqrt(12. * kDraws));
  EXPECT_NEAR(both, 0.25, 0.01);  // independent: a third if they were equal
}

TEST(Geometry, RandomCropsReachTheEdges) {
  const RandomCrop crop{.least_area = 0.25, .most_area = 0.25, .least_aspect = 1, .most_aspect = 1};
  std::map<std::pair<int64_t, int64_t>, int> places;
  for (int64_t i = 0; i < 900; ++i) {
    const Window w = GeometryOf(4, 4, Random(crop), SampleDraw{1, i})->source;
    EXPECT_EQ(Numbers(w.height, w.width, 0, 0), Numbers(2, 2, 0, 0));
    ++places[{w.top, w.left}];
  }
  EXPECT_EQ(places.size(), 9u);
  for (const auto& [place, count] : places) EXPECT_NEAR(count, 100, 40);
}

// No window of 0.9 of the area and at most 4/3 wide lies in a picture of 4 to 1.
TEST(Geometry, RandomCropFallsBackToTheCentre) {
  const RandomCrop crop{.least_area = 0.9, .most_area = 1};
  const auto window = [&](int64_t height, int64_t width) {
    const Window w = GeometryOf(height, width, Random(crop), SampleDraw{1, 1})->source;
    return Numbers(w.top, w.left, w.height, w.width);
  };
  EXPECT_EQ(window(100, 400), Numbers(0, 133, 100, 133));
  EXPECT_EQ(window(400, 100), Numbers(133, 0, 133, 100));
  EXPECT_EQ(window(1, 50), Numbers(0, 24, 1, 1));
  EXPECT_EQ(window(50, 1), Numbers(24, 0, 1, 1));
  EXPECT_EQ(window(1, 1), Numbers(0, 0, 1, 1));
}

}  // namespace
}  // namespace gyre
