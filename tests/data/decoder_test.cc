#include "engine/data/batches/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

namespace gyre {
namespace {

template <typename From, typename To>
std::vector<To> Decoded(std::vector<From> from, const Shape& shape, const Move& move = {},
                        const Normalization& normalization = {}) {
  std::vector<To> to(from.size() + 1, To(77));  // the element after the sample is another's
  const absl::Status decoded =
      Decoder(kDTypeOf<From>, kDTypeOf<To>, normalization)
          .Decode({from.data(), shape, kDTypeOf<From>}, move, {to.data(), shape, kDTypeOf<To>});
  EXPECT_EQ(decoded.message(), "");
  EXPECT_EQ(to.back(), 77);
  to.pop_back();
  return to;
}

TEST(Decoder, NormalisesByHand) {
  const Normalization normalization{.mean = {0.5}, .std = {0.25}};
  EXPECT_EQ((Decoded<uint8_t, double>({0, 255, 51}, {1, 3, 1}, {}, normalization)),
            (std::vector<double>{-2, 2, (51 / 255. - 0.5) / 0.25}));
  EXPECT_EQ((Decoded<uint8_t, float>({0, 255, 51}, {3}, {}, normalization)),
            (std::vector<float>{-2, 2, static_cast<float>((51 / 255. - 0.5) / 0.25)}));
  EXPECT_EQ((Decoded<float, double>({0, 255, 0.5}, {3, 1}, {}, normalization)),
            (std::vector<double>{-2, 1018, 0}));
  EXPECT_EQ((Decoded<uint8_t, Half>({0, 255, 51}, {3}, {}, normalization)[2].bits),
            Half(static_cast<float>((51 / 255. - 0.5) / 0.25)).bits);
  EXPECT_EQ((Decoded<double, float>({0.1}, {}, {}, normalization)),
            (std::vector<float>{static_cast<float>((0.1 - 0.5) / 0.25)}));
}

TEST(Decoder, NormalisesByChannel) {
  const Normalization normalization{.mean = {0, 1, 2}, .std = {1, 2, 4}};
  EXPECT_EQ((Decoded<float, float>({8, 9, 10, 0, 1, 2}, {2, 1, 3}, {}, normalization)),
            (std::vector<float>{8, 4, 2, 0, 0, 0}));
  EXPECT_EQ((Decoded<uint8_t, double>({255, 255, 0, 0, 0, 255}, {2, 3}, {}, normalization)),
            (std::vector<double>{1, 0, -0.5, 0, -0.5, -0.25}));
  const std::vector<double> values = PixelValues(normalization);
  ASSERT_EQ(values.size(), 3u * 256);
  EXPECT_EQ(values[2 * 256 + 255], -0.25);
}

TEST(Decoder, KeepsIntegersAndBytes) {
  const Normalization ignored{.mean = {3}, .std = {5}};
  EXPECT_EQ((Decoded<uint8_t, int32_t>({0, 255}, {2}, {}, ignored)), (std::vector{0, 255}));
  EXPECT_EQ((Decoded<int32_t, int32_t>({-7, 1 << 30}, {2}, {}, ignored)),
            (std::vector{-7, 1 << 30}));
  EXPECT_EQ((Decoded<uint8_t, uint8_t>({3, 250}, {2}, {}, ignored)),
            (std::vector<uint8_t>{3, 250}));
  EXPECT_FALSE(Decoder::CanDecode(DType::kI32, DType::kF32));
  EXPECT_FALSE(Decoder::CanDecode(DType::kF32, DType::kI32));
  EXPECT_FALSE(Decoder::CanDecode(DType::kF32, DType::kU8));
}

TEST(Decoder, RefusesWhatIsNotFinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const struct {
    double x, std;
    DType to;
    const char* error;
  } cases[] = {
      {std::nan(""), 1, DType::kF32, "holds nan"},
      {-kInf, 1, DType::kF64, "holds -inf"},
      {3.5e38, 1, DType::kF32, "holds 3.5e+38, which normalised is beyond F32"},
      {3.5e38, 1, DType::kF64, ""},
      {3.5e38, 2, DType::kF32, ""},
      {-1e200, 1e-200, DType::kF64, "holds -1e+200, which normalised is beyond F64"},
  };
  for (const auto& c : cases) {
    double from[] = {0, c.x, 1}, to[3];
    EXPECT_EQ(Decoder(DType::kF64, c.to, {.mean = {0}, .std = {c.std}})
                  .Decode({from, {3}, DType::kF64}, {}, {to, {3}, c.to})
                  .message(),
              c.error);
  }
}

// [2, 3, 2]: rows of three pixels, each a number and its tenfold.
TEST(Decoder, MovesByHand) {
  const std::vector<uint8_t> sample = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60};
  const auto moved = [&](const Move& move) {
    return Decoded<uint8_t, int32_t>(sample, {2, 3, 2}, move);
  };
  EXPECT_EQ(moved({.flip = true}), (std::vector{3, 30, 2, 20, 1, 10, 6, 60, 5, 50, 4, 40}));
  EXPECT_EQ(moved({.down = 1}), (std::vector{4, 40, 5, 50, 6, 60, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(moved({.down = -1}), (std::vector{0, 0, 0, 0, 0, 0, 1, 10, 2, 20, 3, 30}));
  EXPECT_EQ(moved({.right = 1}), (std::vector{2, 20, 3, 30, 0, 0, 5, 50, 6, 60, 0, 0}));
  EXPECT_EQ(moved({.right = -2}), (std::vector{0, 0, 0, 0, 1, 10, 0, 0, 0, 0, 4, 40}));
  EXPECT_EQ(moved({.flip = true, .down = 1, .right = 1}),
            (std::vector{0, 0, 6, 60, 5, 50, 0, 0, 0, 0, 0, 0}));
  // What comes in from outside is a stored 0.
  EXPECT_EQ((Decoded<float, float>({4}, {1, 1, 1}, {.right = 1}, {.mean = {3}, .std = {2}})),
            (std::vector<float>{-1.5}));
  EXPECT_EQ((Decoded<uint8_t, float>({4}, {1, 1, 1}, {.right = 1}, {.mean = {3}, .std = {2}})),
            (std::vector<float>{-1.5}));
}

// Move's definition, for any number of channels.
TEST(Decoder, MovesBeyondEveryEdge) {
  constexpr int64_t kHeight = 2, kWidth = 3;
  for (const int64_t channels : {1, 2, 3, 4}) {
    std::vector<uint8_t> sample(kHeight * kWidth * channels);
    std::iota(sample.begin(), sample.end(), uint8_t{1});
    for (int64_t draw = 0; draw < 2 * 9 * 9; ++draw) {
      const Move move = {.flip = draw % 2 == 1, .down = draw / 2 % 9 - 4, .right = draw / 18 - 4};
      std::vector<int32_t> expected;
      for (int64_t i = 0; i < kHeight * kWidth * channels; ++i) {
        const int64_t column = i / channels % kWidth;
        const int64_t y = i / channels / kWidth + move.down;
        const int64_t x = (move.flip ? kWidth - 1 - column : column) + move.right;
        const bool inside = y >= 0 && y < kHeight && x >= 0 && x < kWidth;
        expected.push_back(inside ? sample[(y * kWidth + x) * channels + i % channels] : 0);
      }
      EXPECT_EQ((Decoded<uint8_t, int32_t>(sample, {kHeight, kWidth, channels}, move)), expected)
          << channels << " " << move.flip << " " << move.down << " " << move.right;
    }
  }
}

TEST(Decoder, MovesAreDrawnEvenly) {
  std::map<int64_t, int> down, right, flips;
  constexpr int kDraws = 20'000;
  for (int position = 0; position < kDraws; ++position) {
    const Move move = MoveAt({.flip = true, .shift = 2}, /*seed=*/5, position);
    ++down[move.down];
    ++right[move.right];
    ++flips[move.flip ? 1 : 0];
    const Move still = MoveAt({}, 5, position);
    ASSERT_FALSE(still.flip || still.down != 0 || still.right != 0);
  }
  for (const auto& counts : {down, right}) {
    ASSERT_EQ(counts.size(), 5u);
    for (const auto& [shift, count] : counts) {
      EXPECT_LE(std::abs(shift), 2);
      EXPECT_NEAR(count, kDraws / 5, 300) << shift;  // five standard deviations
    }
  }
  EXPECT_NEAR(flips[1], kDraws / 2, 360);
  EXPECT_NE(MoveAt({.shift = 1000}, 5, 0).down, MoveAt({.shift = 1000}, 6, 0).down);
}

}  // namespace
}  // namespace gyre
