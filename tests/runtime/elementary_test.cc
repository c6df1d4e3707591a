// Elementary functions in float: how far from double, what comes of extremes, and that they are the
// same bits in every vector register.
#include "engine/runtime/elementary.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "engine/runtime/parallel/parallel.h"
#include "tests/runtime/instruction_sets.h"

namespace gyre {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

enum class Function { kExp, kLogistic, kTanh, kNormalCdf };

template <typename A>
HOST_DEVICE A Value(Function f, A x) {
  return f == Function::kExp        ? Exp(x)
         : f == Function::kLogistic ? Logistic(x)
         : f == Function::kTanh     ? Tanh(x)
                                    : NormalCdf(x);
}

struct Case {
  Function function;
  double from, to;                                      // where it is compared
  double units;                                         // of the last place
  double relative = 0;                                  // or so much of the value
  double at_least = std::numeric_limits<float>::min();  // of the value
};

constexpr Case kCases[] = {
    {Function::kExp, -104, 89, 2},
    {Function::kLogistic, -87, 30, 4},
    {Function::kTanh, -20, 20, 4},
    {Function::kNormalCdf, -1.4, 8, 12},
    {Function::kNormalCdf, -13, -1.4, 0, 8e-6},
};

TEST(Elementary, IsCloseToDouble) {
  std::mt19937_64 random(1);
  for (const Case& c : kCases) {
    std::uniform_real_distribution<double> uniform(c.from, c.to), exponent(-40, 0);
    double worst = 0;
    for (int i = 0; i < 400'000; ++i) {
      // A quarter of them near 0.
      const double at = i % 4 == 0 ? std::ldexp(c.to, static_cast<int>(exponent(random))) *
                                         (i % 8 == 0 && c.from < -c.to / 2 ? -1 : 1)
                                   : uniform(random);
      const float x = static_cast<float>(at);
      if (x < c.from || x > c.to) continue;
      const double want = Value(c.function, static_cast<double>(x));
      if (std::abs(want) < c.at_least || std::abs(want) > std::numeric_limits<float>::max())
        continue;
      const double unit = std::ldexp(1.0, std::ilogb(want) - 23);
      const double bound = c.units * unit + c.relative * std::abs(want);
      const double error = std::abs(Value(c.function, x) - want) / bound;
      worst = std::max(worst, error);
      ASSERT_LE(error, 1) << static_cast<int>(c.function) << "(" << x << ")";
    }
    // The bound is not idle talk.
    EXPECT_GE(worst, 0.2) << static_cast<int>(c.function);
  }
}

TEST(Elementary, Extremes) {
  EXPECT_EQ(Exp(0.f), 1);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(89.f), kInf);
  EXPECT_EQ(Exp(-kInf), 0);
  EXPECT_EQ(Exp(-104.f), 0);
  EXPECT_GT(Exp(-103.f), 0);
  EXPECT_EQ(Logistic(0.f), 0.5f);
  EXPECT_EQ(Logistic(kInf), 1);
  EXPECT_EQ(Logistic(-kInf), 0);
  EXPECT_EQ(Tanh(kInf), 1);
  EXPECT_EQ(Tanh(-kInf), -1);
  EXPECT_EQ(Tanh(1e-30f), 1e-30f);
  EXPECT_TRUE(std::signbit(Tanh(-0.f)));
  EXPECT_EQ(NormalCdf(0.f), 0.5f);
  EXPECT_EQ(NormalCdf(kInf), 1);
  EXPECT_EQ(NormalCdf(-kInf), 0);
  for (const Case& c : kCases) EXPECT_TRUE(std::isnan(Value(c.function, std::nanf(""))));
}

struct Apply {
  Function function;
  const float* x;
  float* y;
  HOST_DEVICE void operator()(int64_t i) const { y[i] = Value(function, x[i]); }
};

TEST(Elementary, TheSameBitsInEveryRegister) {
  std::mt19937 random(2);
  std::vector<float> x(4099);
  for (float& v : x) v = static_cast<float>(static_cast<int32_t>(random())) * 5e-8f;
  x[7] = kInf;
  x[77] = -kInf;
  for (const Function f :
       {Function::kExp, Function::kLogistic, Function::kTanh, Function::kNormalCdf}) {
    std::vector<float> alone(x.size());
    for (size_t i = 0; i < x.size(); ++i) alone[i] = Value(f, x[i]);
    WithEachInstructionSet([&] {
      std::vector<float> y(x.size());
      ForEachOnHost(static_cast<int64_t>(x.size()), Apply{f, x.data(), y.data()});
      EXPECT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0);
    });
  }
}

}  // namespace
}  // namespace gyre
