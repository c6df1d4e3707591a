#include "layers/common/global_mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/runtime/monoid_check.h"

namespace gyre {
namespace {

// A label that is within range may be ignored, too.
TEST(Labels, IgnoredWithinRange) {
  const int32_t labels[] = {1};
  const Labels ignoring{labels, 3, true, 1, {1, 1}};
  EXPECT_FALSE(ignoring.Counts(0));
  EXPECT_FALSE(ignoring.Bad(0));
}

struct Third {
  HOST_DEVICE double operator()(int64_t n, int32_t label) const {
    return static_cast<double>(n) + label / 3.0;
  }
};

TEST(SumOverTerms, IsAMonoid) {
  std::vector<int32_t> labels;
  for (int32_t n = 0; n < 37; ++n) labels.push_back(n * n % 7 - 1);
  Fault fault;
  const SumOverTerms<LabelTerm<Third>> sum{
      {}, {{labels.data(), 5, true, 3, {37, 1}}, {}, &fault, 2}, nullptr, nullptr};
  EXPECT_TRUE(IsMonoid(sum, 1, 37, [](const SumAndCount& a, const SumAndCount& b) {
    return a.count == b.count && std::abs(a.sum - b.sum) <= 1e-12 * std::abs(b.sum);
  }));
  EXPECT_EQ(fault.layer(), 2);
  EXPECT_EQ(fault.index(), 0);  // label -1
}

}  // namespace
}  // namespace gyre
