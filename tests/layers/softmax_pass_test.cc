#include "layers/common/softmax_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/runtime/parallel/parallel.h"
#include "tests/runtime/monoid_check.h"

namespace gyre {
namespace {

template <typename T>
std::vector<double> LogSoftmax(int64_t rows, int64_t columns, const std::vector<double>& values) {
  std::vector<T> x, y(values.size());
  for (const double value : values) x.push_back(static_cast<T>(static_cast<float>(value)));
  const auto device = NewCpuDevice({.threads = 3});
  EXPECT_TRUE(TransformRows(**device->NewStream(), rows, columns,
                            LogSoftmaxRows<T>{{}, columns, x.data(), y.data()})
                  .ok());
  return std::vector<double>(y.begin(), y.end());
}

template <typename T>
class SoftmaxPassTest : public testing::Test {};
using RealTypes = testing::Types<double, float, Half, BFloat16>;
TYPED_TEST_SUITE(SoftmaxPassTest, RealTypes);

// F32 is summed in double: exact but for its last rounding.
TYPED_TEST(SoftmaxPassTest, LogSoftmaxIsItsFormula) {
  const double rounding = std::is_same_v<TypeParam, double>  ? 1e-14
                          : std::is_same_v<TypeParam, float> ? 6e-8
                          : std::is_same_v<TypeParam, Half>  ? 1e-3
                                                             : 8e-3;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const int64_t rows : {0, 1, 7}) {
    for (const int64_t columns : {1, 2, 10, 1000}) {
      for (const float scale : {1.0f, 100.0f, 1e4f}) {  // exp of the last overflows
        std::vector<double> x(static_cast<size_t>(rows * columns));
        for (double& value : x) {
          value = static_cast<double>(static_cast<TypeParam>(scale * uniform(random)));
        }
        const std::vector<double> y = LogSoftmax<TypeParam>(rows, columns, x);
        for (int64_t row = 0; row < rows; ++row) {
          const auto begin = x.begin() + row * columns, end = begin + columns;
          const long double largest = *std::max_element(begin, end);
          long double sum = 0;
          for (auto value = begin; value != end; ++value) sum += std::exp(*value - largest);
          for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
            const auto want = static_cast<double>(x[i] - largest - std::log(sum));
            ASSERT_NEAR(y[i], want, rounding * (std::abs(want) + 1)) << columns << " of " << scale;
          }
        }
      }
    }
  }
}

TYPED_TEST(SoftmaxPassTest, LogSoftmaxOfInfinitiesAndNaNs) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto run = [](const std::vector<double>& x) { return LogSoftmax<TypeParam>(1, 4, x); };
  for (const auto& x : {std::vector<double>{-kInf, -kInf, -kInf, -kInf},
                        {0, kInf, 1, 2},
                        {kInf, kInf, 0, -kInf},
                        {NAN, 1, 2, 3},
                        {1, 2, 3, NAN},
                        {-kInf, NAN, kInf, -kInf}}) {
    for (const double y : run(x)) EXPECT_TRUE(std::isnan(y));
  }
  EXPECT_EQ(run({-kInf, -kInf, -kInf, 5}), (std::vector<double>{-kInf, -kInf, -kInf, 0}));
  const auto y = run({1, -kInf, 1, -kInf});
  EXPECT_NEAR(y[0], -std::log(2.0), 4e-3);
  EXPECT_EQ(y[1], -kInf);
  EXPECT_EQ(y[2], y[0]);
}

TYPED_TEST(SoftmaxPassTest, LogSoftmaxRowsIsAMonoid) {
  const double roundings = 40 * (sizeof(TypeParam) == 8 ? 2e-16 : 1e-7);
  std::mt19937_64 random(9);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<TypeParam> values(5 * 9);
  for (TypeParam& value : values) value = static_cast<TypeParam>(uniform(random));
  EXPECT_TRUE(
      IsMonoid(LogSoftmaxRows<TypeParam>{{}, 9, values.data(), nullptr}, 5, 9, [&](auto a, auto b) {
        return a.largest == b.largest && std::abs(a.sum - b.sum) <= roundings * b.sum;
      }));
}

}  // namespace
}  // namespace gyre
