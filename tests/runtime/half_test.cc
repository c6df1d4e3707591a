#include "engine/runtime/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

namespace gyre {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// The two formats as IEEE 754 describes them: exponents from `least_exponent`, `precision` bits
// with the hidden one.
template <typename T>
struct Format;
template <>
struct Format<Half> {
  static constexpr int precision = 11, least_exponent = -14, exponent_bits = 5;
};
template <>
struct Format<BFloat16> {
  static constexpr int precision = 8, least_exponent = -126, exponent_bits = 8;
};

template <typename T>
T FromBits(uint32_t bits) {
  T value;
  value.bits = static_cast<uint16_t>(bits);
  return value;
}

// What the bits mean, from the definition.
template <typename T>
double Meaning(T value) {
  using F = Format<T>;
  const int fraction_bits = F::precision - 1;
  const int exponent = value.bits >> fraction_bits & ((1 << F::exponent_bits) - 1);
  const int fraction = value.bits & ((1 << fraction_bits) - 1);
  double magnitude;
  if (exponent == (1 << F::exponent_bits) - 1) {
    magnitude = fraction == 0 ? kInf : std::nan("");
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, F::least_exponent - fraction_bits);
  } else {
    magnitude = std::ldexp((1 << fraction_bits) + fraction,
                           exponent - 1 + F::least_exponent - fraction_bits);
  }
  return std::copysign(magnitude, value.bits >> 15 != 0 ? -1.0 : 1.0);
}

// x rounded to the format's nearest, ties to even, exponents unbounded above; then what is beyond
// the largest finite number is infinite.  Exact in double.
template <typename T>
double Rounded(float x) {
  using F = Format<T>;
  if (x == 0 || !std::isfinite(x)) return x;
  const int last_place = std::max(std::ilogb(x), F::least_exponent) - (F::precision - 1);
  const double rounded =
      std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), -last_place)), last_place);
  const double beyond = std::ldexp(1.0, 2 - F::least_exponent);  // 2^16, 2^128
  return std::abs(rounded) >= beyond ? std::copysign(kInf, rounded) : rounded;
}

template <typename T>
testing::AssertionResult Converts(float x) {
  const T narrow(x);
  const double got = Meaning(narrow), expected = Rounded<T>(x);
  const bool same = std::isnan(x) ? narrow.bits == 0x7FFF
                                  : got == expected && std::signbit(got) == std::signbit(x);
  if (same) return testing::AssertionSuccess();
  return testing::AssertionFailure() << std::hexfloat << x << " became " << got << ", bits "
                                     << std::hex << narrow.bits << ", instead of " << expected;
}

template <typename T>
class SixteenBits : public testing::Test {};
using Types = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(SixteenBits, Types);

TYPED_TEST(SixteenBits, AreBytesThatMayBeCopied) {
  EXPECT_EQ(sizeof(TypeParam), 2u);
  EXPECT_TRUE(std::is_trivial_v<TypeParam>);
  EXPECT_TRUE(std::is_standard_layout_v<TypeParam>);
  EXPECT_FALSE((std::is_convertible_v<float, TypeParam>));  // rounding is written out
  EXPECT_TRUE((std::is_same_v<decltype(TypeParam() * TypeParam()), float>));
}

TYPED_TEST(SixteenBits, EveryPatternMeansWhatTheFormatSaysAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = FromBits<TypeParam>(bits);
    const float wide = value;
    const double meaning = Meaning(value);
    if (std::isnan(meaning)) {
      ASSERT_TRUE(std::isnan(wide)) << std::hex << bits;
      ASSERT_EQ(TypeParam(wide).bits, 0x7FFF) << std::hex << bits;
    } else {
      ASSERT_EQ(wide, meaning) << std::hex << bits;
      ASSERT_EQ(std::signbit(wide), std::signbit(meaning)) << std::hex << bits;
      ASSERT_EQ(TypeParam(wide).bits, bits) << std::hex << bits;
    }
  }
}

// Around each number and around the middle between it and the next one, which a float can hold.
TYPED_TEST(SixteenBits, RoundsAtEveryBoundary) {
  for (uint32_t bits = 0; std::isfinite(Meaning(FromBits<TypeParam>(bits))); ++bits) {
    const double low = Meaning(FromBits<TypeParam>(bits));
    double high = Meaning(FromBits<TypeParam>(bits + 1));
    if (std::isinf(high)) high = low + (low - Meaning(FromBits<TypeParam>(bits - 1)));
    for (const double boundary : {low, (low + high) / 2}) {
      const auto x = static_cast<float>(boundary);
      ASSERT_EQ(x, boundary);
      for (const float y : {std::nextafter(x, -kInf), x, std::nextafter(x, kInf)}) {
        ASSERT_TRUE(Converts<TypeParam>(y));
        ASSERT_TRUE(Converts<TypeParam>(-y));
      }
    }
  }
}

TYPED_TEST(SixteenBits, KeepsZerosInfinitiesAndNaN) {
  EXPECT_EQ(TypeParam(0.0f).bits, 0);
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
  EXPECT_EQ(TypeParam(kInf), kInf);
  EXPECT_EQ(TypeParam(-kInf), -kInf);
  for (const uint32_t nan : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_EQ(TypeParam(BitCast<float>(nan)).bits, 0x7FFF);
  }
  const float most = std::numeric_limits<float>::max(),
              least = std::numeric_limits<float>::denorm_min();
  for (const float x : {most, -most, least, -least}) EXPECT_TRUE(Converts<TypeParam>(x));
}

TEST(BFloat16, KnownValues) {
  EXPECT_EQ(BFloat16(1).bits, 0x3F80);
  EXPECT_EQ(BFloat16(-2).bits, 0xC000);
  EXPECT_EQ(BFloat16(0.1f).bits, 0x3DCD);
  EXPECT_EQ(BFloat16(0x1.FEp127f).bits, 0x7F7F);
  EXPECT_EQ(BFloat16(0x1.FEFFFEp127f).bits, 0x7F7F);
  EXPECT_EQ(BFloat16(0x1.FFp127f).bits, 0x7F80);
  EXPECT_EQ(BFloat16(0x1p-133f).bits, 0x0001);
  EXPECT_EQ(BFloat16(0x1p-134f).bits, 0x0000);  // a tie
}

// An independent opinion, where the compiler has one.
#if defined(__FLT16_MANT_DIG__)
TEST(Half, AgreesWithTheCompilersType) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 4'000'000; ++i) {
    const float x = BitCast<float>(static_cast<uint32_t>(random() >> 32));
    if (std::isnan(x)) continue;
    const auto expected = static_cast<_Float16>(x);
    uint16_t bits;
    std::memcpy(&bits, &expected, sizeof(bits));
    ASSERT_EQ(Half(x).bits, bits) << std::hexfloat << x;
    ASSERT_EQ(static_cast<float>(Half(x)), static_cast<float>(expected));
  }
}
#endif

}  // namespace
}  // namespace gyre
