#include "engine/runtime/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <vector>

namespace gyre {
namespace {

// Known answers: Random123 1.14, tests/kat_vectors, lines "philox4x32 10", least significant word
// first.
TEST(PhiloxTest, GivesThePublishedAnswers) {
  struct Case {
    uint32_t counter[4], key[2], expected[4];
  };
  constexpr uint32_t kOnes = 0xffffffff;
  const Case cases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{kOnes, kOnes, kOnes, kOnes},
       {kOnes, kOnes},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Case& c : cases) {
    const auto join = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
    const RandomBits bits = Philox(join(c.key[0], c.key[1]), join(c.counter[2], c.counter[3]),
                                   join(c.counter[0], c.counter[1]));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(bits.v[i], c.expected[i]) << i;
  }
}

TEST(UniformTest, CoversZeroToOneExclusive) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_EQ(UniformFloat(0xffffffff), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(UniformFloat(0x80000000), 0.5f);
  EXPECT_EQ(UniformDouble(0, 0), 0.0);
  EXPECT_EQ(UniformDouble(0xffffffff, 0xffffffff), std::nextafter(1.0, 0.0));
  EXPECT_EQ(UniformDouble(0x80000000, 0), 0.5);
  EXPECT_EQ(UniformDouble(0, 1u << 11), 0x1p-53);
}

TEST(NormalsTest, HaveTheMomentsOfAStandardNormal) {
  constexpr int kPairs = 1 << 18;
  double sum = 0, squares = 0, fourth = 0, cross = 0;
  int beyond_two = 0;
  for (int i = 0; i < kPairs; ++i) {
    const NormalPair pair = Normals(Philox(7, 1, i));
    for (const double x : {pair.first, pair.second}) {
      sum += x;
      squares += x * x;
      fourth += x * x * x * x;
      beyond_two += std::abs(x) > 2;
    }
    cross += pair.first * pair.second;
  }
  // Six standard deviations of each estimate from n = 524288 deviates.
  constexpr double kN = 2.0 * kPairs;
  EXPECT_NEAR(sum / kN, 0, 6 / std::sqrt(kN));
  EXPECT_NEAR(squares / kN, 1, 6 * std::sqrt(2 / kN));
  EXPECT_NEAR(fourth / kN, 3, 6 * std::sqrt(96 / kN));
  EXPECT_NEAR(cross / kPairs, 0, 6 / std::sqrt(kPairs));
  EXPECT_NEAR(beyond_two / kN, 0.0455003, 6 * std::sqrt(0.0455 / kN));
}

// To 2 in the last place, near the ends of the ranges too.
TEST(NormalsTest, LogarithmAndCircleAreTheLibrarys) {
  using random_internal::CosSin;
  using random_internal::MinusLog;
  std::vector<double> turns = {0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875};
  for (const double turn : std::vector(turns)) turns.push_back(std::nextafter(turn, 1));
  for (const double turn : std::vector(turns)) turns.push_back(std::nextafter(1 - turn, 0));
  std::vector<double> numbers;
  for (int e = 0; e <= 53; ++e) {
    for (const double m : {1.0, 0.99999, std::sqrt(0.5), 0.7071, 0.50001}) {
      if (std::ldexp(m, -e) >= 0x1p-53) numbers.push_back(std::ldexp(m, -e));
    }
  }
  for (int i = 0; i < 100000; ++i) {
    const RandomBits bits = Philox(8, 1, i);
    turns.push_back(UniformDouble(bits.v[0], bits.v[1]));
    numbers.push_back(1 - UniformDouble(bits.v[2], bits.v[3]));
  }
  for (const double turn : turns) {
    const long double angle = 2 * std::numbers::pi_v<long double> * turn;
    EXPECT_NEAR(CosSin(turn).first, static_cast<double>(std::cos(angle)), 4e-16) << turn;
    EXPECT_NEAR(CosSin(turn).second, static_cast<double>(std::sin(angle)), 4e-16) << turn;
  }
  for (const double u : numbers) {
    EXPECT_NEAR(MinusLog(u), -std::log(u), -5e-16 * std::log(u)) << u;
  }
}

TEST(NormalsTest, AreFiniteAtTheEdges) {
  constexpr uint32_t kOnes = 0xffffffff;
  const NormalPair least = Normals({{0, 0, 0, 0}});
  EXPECT_EQ(least.first, 0);
  EXPECT_EQ(least.second, 0);
  const NormalPair most = Normals({{kOnes, kOnes, 0, 0}});
  EXPECT_NEAR(most.first, std::sqrt(2 * 53 * std::log(2.0)), 1e-12);
  EXPECT_TRUE(std::isfinite(Normals({{kOnes, kOnes, kOnes, kOnes}}).second));
}

TEST(RandomKeyTest, SeedsAndPurposesHaveKeysOfTheirOwn) {
  std::set<uint64_t> keys;
  const std::vector<std::string> purposes = {
      "", "a", "b", "ab", "ba", "conv1", "conv2", "conv1/weight", std::string("a\0", 2)};
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    for (const std::string& purpose : purposes) keys.insert(RandomKey(seed, purpose));
  }
  EXPECT_EQ(keys.size(), 1000 * purposes.size());
  EXPECT_EQ(RandomKey(3, "conv1"), RandomKey(3, std::string("conv1")));
}

// Weights and checkpoints of earlier runs depend on it.
TEST(RandomKeyTest, StaysWhatItWas) {
  EXPECT_EQ(RandomKey(0, ""), RandomKey(0, std::string_view()));
  const RandomBits bits = Philox(5, 3, 0xe71fa2190541574b);  // FNV-1a of "abc"
  EXPECT_EQ(RandomKey(5, "abc"), uint64_t{bits.v[1]} << 32 | bits.v[0]);
}

}  // namespace
}  // namespace gyre
