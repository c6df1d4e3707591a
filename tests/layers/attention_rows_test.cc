#include "layers/attention/attention_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/monoid_check.h"

namespace gyre {
namespace {

// Of one head.
Visible<false> Causal(int64_t rows, int64_t keys) {
  return {.rows = rows,
          .heads = 1,
          .first_row = 0,
          .queries = rows,
          .keys = keys,
          .causal = true,
          .lengths = nullptr};
}

// Any order and bracketing gives one maximum, which is NaN if a key is; keys that a row does not
// see change nothing, whatever is there.
TEST(AttentionRows, TheLargestIsAMonoid) {
  constexpr int64_t kRows = 5, kKeys = 5;
  double scores[kRows * kKeys] = {1,   NAN, NAN, NAN, NAN, -700, 700, NAN, NAN, NAN, 0, 0, 0,
                                  NAN, NAN, 3,   -2,  5,   1,    NAN, 1,   2,   NAN, 3, 4};
  double largest[kRows] = {};
  const LargestOfSeen<double, false> softmax{{.visible = Causal(kRows, kKeys),
                                              .stride = kKeys,
                                              .scale = 1,
                                              .scores = scores,
                                              .largest = largest,
                                              .factor = nullptr}};
  const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
  EXPECT_TRUE(IsMonoid(softmax, kRows, kKeys, same));
}

// So do the largest and the sum in one pass.
TEST(AttentionRows, TheRunningSoftmaxIsAMonoid) {
  constexpr int64_t kRows = 4, kKeys = 4;
  double scores[kRows * kKeys] = {1, NAN, NAN, NAN, -700, 700, NAN, NAN, 0, 0, 0, NAN, 3, -2, 5, 1};
  double largest[kRows] = {}, factor[kRows] = {};
  const SoftmaxOfSeen<double, false, double> softmax{{},
                                                     {.visible = Causal(kRows, kKeys),
                                                      .stride = kKeys,
                                                      .scale = 1,
                                                      .scores = scores,
                                                      .largest = largest,
                                                      .factor = factor},
                                                     scores};
  const auto near = [](auto a, auto b) {
    return a.largest == b.largest && std::abs(a.sum - b.sum) <= 1e-15 * std::abs(a.sum);
  };
  EXPECT_TRUE(IsMonoid(softmax, kRows, kKeys, near));
}

TEST(AttentionRows, KeysThatARowSees) {
  const int32_t lengths[] = {3, 0, 4, -1, 5};
  Visible<true> visible{.rows = 2,
                        .heads = 1,
                        .first_row = 2,
                        .queries = 4,
                        .keys = 4,
                        .causal = false,
                        .lengths = lengths};
  // Rows 2 and 3 of each sample.  Lengths that are out of range count as 0.
  const int64_t all[] = {3, 3, 0, 0, 4, 4, 0, 0, 0, 0}, causal[] = {3, 3, 0, 0, 3, 4, 0, 0, 0, 0};
  for (int64_t row = 0; row < 10; ++row) {
    EXPECT_EQ(visible(row), all[row]);
    visible.causal = true;
    EXPECT_EQ(visible(row), causal[row]);
    visible.causal = false;
  }
}

}  // namespace
}  // namespace gyre
