#include "engine/runtime/decimal.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace gyre {
namespace {

// Of thousandths of n / d the next integers, against those of integers.
TEST(Decimal, ProductsHaveTheIntegersOfTheirDecimals) {
  int beyond = 0;
  for (int64_t thousandths = 0; thousandths < 4000; ++thousandths) {
    for (const int64_t n : {1, 23, 30, 1000, 60000}) {
      for (const int64_t d : {1, 3, 7, 100}) {
        const double x = static_cast<double>(thousandths) / 1000 * static_cast<double>(n) /
                         static_cast<double>(d);
        const int64_t above = thousandths * n, below = 1000 * d;
        ASSERT_EQ(CeilOfProduct(x), (above + below - 1) / below) << thousandths << " " << n;
        ASSERT_EQ(FloorOfProduct(x), above / below) << thousandths << " " << n;
        beyond += std::ceil(x) != CeilOfProduct(x);
      }
    }
  }
  EXPECT_GT(beyond, 10);  // it is no idle care
  EXPECT_EQ(CeilOfProduct(3.001), 4);
  EXPECT_EQ(FloorOfProduct(2.999), 2);
}

TEST(Decimal, ATimeIsComparedAsItsDecimal) {
  for (const double border : {0.03, 0.07, 0.2, 0.3, 1.5}) {
    const double kept = static_cast<float>(border);
    EXPECT_TRUE(IsAtMost(kept, border) && IsAtLeast(kept, border)) << border;
    EXPECT_FALSE(IsAtMost(border + 1e-6, border) || IsAtLeast(border - 1e-6, border)) << border;
  }
  EXPECT_TRUE(IsAtMost(0, 0) && IsAtLeast(0, 0));
  EXPECT_FALSE(IsAtMost(std::numeric_limits<double>::infinity(), 1));
  EXPECT_FALSE(IsAtMost(std::nan(""), 1) || IsAtLeast(std::nan(""), 1));
}

}  // namespace
}  // namespace gyre
