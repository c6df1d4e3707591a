#include "engine/data/batches/mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

namespace gyre {
namespace {

constexpr int kDraws = 20000;

double CubicCdf(double x) { return x * x * (3 - 2 * x); }
double ArcsineCdf(double x) { return 2 / std::numbers::pi * std::asin(std::sqrt(x)); }

// By Kolmogorov and Smirnov: one in 10^6 such draws of the distribution is further from it.
TEST(Mix, SharesAreDrawnFromBeta) {
  const std::pair<double, std::function<double(double)>> cases[] = {
      {0.5, ArcsineCdf}, {1, [](double x) { return x; }}, {2, CubicCdf}};
  for (const auto& [alpha, cdf] : cases) {
    std::vector<double> shares;
    for (int64_t position = 0; position < kDraws; ++position) {
      shares.push_back(SymmetricBeta({3, position}, alpha));
    }
    std::ranges::sort(shares);
    double distance = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double here = cdf(shares[static_cast<size_t>(i)]);
      distance = std::max({distance, here - i / double{kDraws}, (i + 1) / double{kDraws} - here});
    }
    EXPECT_LT(distance * std::sqrt(kDraws), 2.7) << alpha;
  }
}

// Variance 1 / (4 (2 alpha + 1)).  Deviates of a small alpha's gammas vanish, and their logarithms
// overflow below that.
TEST(Mix, SharesOfAnyAlpha) {
  for (const double alpha : {5e-324, 1e-6, 0.2, 1., 2., 50.}) {
    double sum = 0, squares = 0;
    for (int64_t position = 0; position < kDraws; ++position) {
      const double share = SymmetricBeta({4, position}, alpha);
      ASSERT_TRUE(share >= 0 && share <= 1) << share;
      sum += share - 0.5;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 0.03 * variance) << alpha;
  }
}

TEST(Mix, EachSampleDrawsItsKind) {
  const Mixing mixing{.mixup = 0.5, .cutmix = 1, .height = 7, .width = 5};
  int mixups = 0, cuts = 0;
  for (int64_t position = 0; position < kDraws; ++position) {
    const SampleDraw draw{1, position};
    const Mix mix = MixAt(mixing, draw);
    if (!mix.mixes) continue;
    ++(mix.window ? cuts : mixups);
    if (!mix.window) {
      EXPECT_EQ(mix.share * 65536, std::floor(mix.share * 65536));
      continue;
    }
    ASSERT_TRUE(0 <= mix.top && mix.top <= mix.bottom && mix.bottom <= 7);
    ASSERT_TRUE(0 <= mix.left && mix.left <= mix.right && mix.right <= 5);
    const auto pixels = static_cast<double>((mix.bottom - mix.top) * (mix.right - mix.left));
    EXPECT_EQ(mix.share, 1 - pixels / 35);
  }
  EXPECT_NEAR(cuts, 0.5 * kDraws, 0.02 * kDraws);
  EXPECT_NEAR(mixups, 0.25 * kDraws, 0.02 * kDraws);
  EXPECT_FALSE(MixAt({}, {1, 2}).mixes);
  EXPECT_FALSE(MixAt({.mixup = 0}, {1, 2}).mixes);
}

// A window of the whole picture's aspect, cut at its borders: torchvision's mean of the true area.
TEST(Mix, WindowsAreTorchvisions) {
  // E[area / (H W)] with r = sqrt(1 - share) and centre uniform: E[(r - r^2 / 4)^2], share uniform,
  // is 1/2 - 1/5 + 1/48.
  const Mixing mixing{.cutmix = 1, .height = 1000, .width = 1500};
  double covered = 0;
  for (int64_t position = 0; position < kDraws; ++position) {
    covered += 1 - MixAt(mixing, {5, position}).share;
  }
  EXPECT_NEAR(covered / kDraws, 1. / 2 - 1. / 5 + 1. / 48, 0.01);
}

TEST(Mix, Pictures) {
  std::array<uint8_t, 12> own = {0, 255, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, other;
  other.fill(100);
  const Shape shape{3, 2, 2};
  Mix mix{.mixes = true, .share = 0.75};
  std::array<uint8_t, 12> to = own;
  MixPicture(mix, {other.data(), shape, DType::kU8}, {to.data(), shape, DType::kU8});
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(to[i], (3 * own[i] + 100 + 2) / 4);
  mix = {.mixes = true, .window = true, .top = 1, .left = 1, .bottom = 3, .right = 2};
  to = own;
  MixPicture(mix, {other.data(), shape, DType::kU8}, {to.data(), shape, DType::kU8});
  EXPECT_EQ(to, (std::array<uint8_t, 12>{0, 255, 3, 4, 5, 6, 100, 100, 9, 10, 100, 100}));
  std::array<float, 3> x = {1, 2, -1}, y = {0, 4, 1};
  MixPicture({.mixes = true, .share = 0.25}, {y.data(), {1, 3, 1}, DType::kF32},
             {x.data(), {1, 3, 1}, DType::kF32});
  EXPECT_EQ(x, (std::array<float, 3>{0.25, 3.5, 0.5}));
}

}  // namespace
}  // namespace gyre
