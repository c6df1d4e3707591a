// Arrays of 16-bit numbers are converted to half.h's bits with every instruction set, whatever the
// length and alignment, also where they are written past the caches.
#include "engine/runtime/primitives/converting/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/runtime/instruction_sets.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

template <typename To>
uint32_t BitsOf(To value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(To));
  return bits;
}

// Converts from[first, first + n) and looks at each element, and at those before and behind.
template <typename To, typename From>
void ExpectConverted(const std::vector<From>& from, int64_t first, int64_t n) {
  const auto device = NewCpuDevice({.threads = 2});
  const auto stream = *device->NewStream();
  const To guard = static_cast<To>(-7.0f);
  std::vector<To> to(static_cast<size_t>(first + n + 1), guard);
  ASSERT_TRUE(ConvertArray(*stream, n, from.data() + first, to.data() + first).ok());
  int64_t wrong = 0;
  // Under a sanitizer all are written, and of many some are compared.
  const int64_t stride = kSanitized && n > 100'000 ? 31 : 1;
  for (int64_t i = 0; i < first + n + 1; i += stride) {
    const bool written = first <= i && i < first + n;
    const To expected = written ? static_cast<To>(from[i]) : guard;
    wrong += int{BitsOf(to[i]) != BitsOf(expected)};
  }
  EXPECT_EQ(wrong, 0) << n << " from " << first << " on";
}

template <typename To, typename From>
void ExpectConvertedEverywhere(const std::vector<From>& from) {
  WithEachInstructionSet([&] {
    for (const int64_t n : {0, 1, 7, 8, 15, 16, 17, 100, 1000, 20'000}) {
      for (const int64_t first : {0, 1, 3}) ExpectConverted<To>(from, first, n);
    }
    ExpectConverted<To>(from, 5, static_cast<int64_t>(from.size()) - 6);
  });
}

template <typename T>
class ConvertTest : public testing::Test {};
using SixteenBitTypes = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(ConvertTest, SixteenBitTypes);

constexpr size_t kPastCaches = 9'000'000;  // 18 MB of 16 bits

// Every one, NaNs that signal among them.
TYPED_TEST(ConvertTest, Widens) {
  std::vector<TypeParam> from(kPastCaches);
  for (size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<uint16_t>(i);
  ExpectConvertedEverywhere<float>(from);
}

// Of any bits, and (every other one) of the exponents that F16 has.
TYPED_TEST(ConvertTest, Narrows) {
  std::mt19937 random(1);
  std::vector<float> from(kPastCaches);
  for (size_t i = 0; i < from.size(); ++i) {
    const auto bits = static_cast<uint32_t>(random());
    const uint32_t exponent = 100 + bits % 45;
    const uint32_t near = (bits & 0x807FFFFF) | exponent << 23;
    from[i] = BitCast<float>(i % 2 == 0 ? bits : near);
  }
  ExpectConvertedEverywhere<TypeParam>(from);
}

}  // namespace
}  // namespace gyre
