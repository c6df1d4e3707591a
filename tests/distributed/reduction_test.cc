// The measure of a sum obeys the laws that splitting it over segments, ranks and blocks relies on.
#include "distributed/reduction.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/runtime/parallel/parallel.h"
#include "tests/runtime/monoid_check.h"

namespace gyre {
namespace {

struct Partials : Sum<PartialResult> {
  PartialResult Load(int64_t row, int64_t column) const {
    return {static_cast<double>((row * 7 + column * 5) % 11) / 4, (row + column) % 6 == 0 ? 1 : 0};
  }
};

TEST(Reduction, PartialResultsAreAMonoid) {
  EXPECT_TRUE(IsMonoid(Partials{}, 5, 9, [](const PartialResult& a, const PartialResult& b) {
    return std::abs(a.sum_of_squares - b.sum_of_squares) <= 1e-12 && a.non_finite == b.non_finite;
  }));
}

}  // namespace
}  // namespace gyre
