#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

constexpr char kPlain[] = "softmax_cross_entropy {}";
constexpr char kIgnoring[] = "softmax_cross_entropy { ignore_label: 255 }";

// softmax [0, 0] = [1/2, 1/2];  softmax [log 3, 0] = [3/4, 1/4].
const TestInput kScores = Real({2, 2}, {0, 0, std::log(3), 0});

// A few roundings of numbers around 1.
double Tolerance(DType compute) {
  switch (compute) {
    case DType::kF64:
      return 1e-15;
    case DType::kF32:
      return 1e-6;
    case DType::kF16:
      return 1e-3;
    default:
      return 1e-2;
  }
}

TEST(SoftmaxCrossEntropy, HandComputed) {
  for (const DType compute : kRealTypes) {
    const double tolerance = Tolerance(compute);
    LayerCase layer{kPlain, {kScores, Labels({1, 0})}};
    layer.output_gradient = {10};
    const auto result = RunLayer(layer, {.compute = compute});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->output_shape, Shape{});
    EXPECT_NEAR(result->output[0], (std::log(2) + std::log(4.0 / 3)) / 2, tolerance);
    EXPECT_NEAR(result->metric[0], std::log(2) + std::log(4.0 / 3), 2 * tolerance);
    EXPECT_EQ(result->metric[1], 2);
    // 10 / 2 times [1/2, 1/2 - 1], [3/4 - 1, 1/4].
    const Doubles expected = {2.5, -2.5, -1.25, 1.25};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(result->input_gradients[0][i], expected[i], 10 * tolerance);
    }
  }
}

TEST(SoftmaxCrossEntropy, IgnoredSamplesCountForNothing) {
  LayerCase all{kPlain, {kScores, Labels({1, 0})}};
  LayerCase some{kIgnoring,
                 {Real({4, 2}, {0, 0, 9, 8, std::log(3), 0, 7, 5}), Labels({1, 255, 0, 255})}};
  const auto a = RunLayer(all), b = RunLayer(some);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(a->output, b->output);
  EXPECT_EQ(a->metric, b->metric);
  const Doubles &da = a->input_gradients[0], &db = b->input_gradients[0];
  EXPECT_EQ(db, (Doubles{da[0], da[1], 0, 0, da[2], da[3], 0, 0}));
  EXPECT_EQ(b->fault.word, Fault::kNone);
}

TEST(SoftmaxCrossEntropy, NothingCounted) {
  const LayerCase layer{kIgnoring, {kScores, Labels({255, 255})}};
  for (const int ranks : {1, 2}) {
    const auto result = RunLayer(layer, {.ranks = ranks});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->output, Doubles{0});
    EXPECT_EQ(result->metric, (Doubles{0, 0}));
    EXPECT_EQ(result->input_gradients[0], (Doubles{0, 0, 0, 0}));
  }
}

// The other samples count as ever; the smallest bad sample is reported.
TEST(SoftmaxCrossEntropy, LabelOutOfRangeIsAFault) {
  for (const int32_t bad :
       {-1, 2, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const auto result = RunLayer({kPlain, {Distinct({4, 2}, 1), Labels({0, bad, 1, bad})}});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->fault.layer(), 7);
    EXPECT_EQ(result->fault.code(), FaultCode::kLabelOutOfRange);
    EXPECT_EQ(result->fault.index(), 1);
    EXPECT_EQ(result->metric[1], 2);
    for (const size_t i : {2, 3, 6, 7}) EXPECT_EQ(result->input_gradients[0][i], 0);
    for (const size_t i : {0, 1, 4, 5}) EXPECT_NE(result->input_gradients[0][i], 0);
  }
}

TEST(SoftmaxCrossEntropy, LargeScores) {
  for (const DType compute : kRealTypes) {
    if (compute == DType::kBF16) continue;  // has no 1e4
    const auto result = RunLayer({kPlain, {Real({2, 2}, {1e4, -1e4, 1e4, -1e4}), Labels({0, 1})}},
                                 {.compute = compute});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->output[0], 1e4);
    for (const double dx : result->input_gradients[0]) EXPECT_TRUE(std::isfinite(dx));
  }
}

TEST(SoftmaxCrossEntropy, Contract) {
  CheckContract({kPlain, {Distinct({5, 7}, 1), Labels({0, 6, 3, 3, 1})}});
  CheckContract({kPlain, {Distinct({3, 1}, 2), Labels({0, 0, 0})}});
  CheckContract({kIgnoring, {Distinct({5, 4}, 3), Labels({0, 255, 3, 255, 2})}});
  // The count differs from rank to rank, and one rank has nothing that counts.
  CheckContract({kIgnoring, {Distinct({7, 3}, 4), Labels({0, 255, 255, 255, 2, 1, 1})}});
}

TEST(SoftmaxCrossEntropy, DeclaresALoss) {
  const auto result = RunLayer(
      {"softmax_cross_entropy { loss_weight: 0.25 ignore_label: 0 }", {kScores, Labels({1, 0})}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->spec.loss_output, 2);
  EXPECT_EQ(result->spec.loss_weight, 0.25);
  EXPECT_EQ(result->spec.forward_phases, 2);
  EXPECT_EQ(result->spec.states[static_cast<size_t>(result->spec.metric)].shape, Shape{2});
  EXPECT_EQ(result->spec.states[0].backward, kNone);  // scores: log softmax is saved
}

TEST(SoftmaxCrossEntropy, Errors) {
  EXPECT_EQ(Refusal({kPlain, {kScores}}), "expects 2 inputs (scores, labels), got 1");
  EXPECT_EQ(Refusal({kPlain, {kScores, kScores}}), "expects labels of type I32, got F64");
  EXPECT_EQ(Refusal({kPlain, {Distinct({2, 2, 1}, 1), Labels({0, 1})}}),
            "expects scores [N, classes], got [2, 2, 1]");
  EXPECT_EQ(Refusal({kPlain, {kScores, Labels({0, 1, 1})}}),
            "expects labels [2], one for each row of scores [2, 2], got [3]");
  EXPECT_EQ(Refusal({kPlain, {Real({2, 0}, {}), Labels({0, 1})}}),
            "classes: expected 1 to 2147483647, got 0");
  EXPECT_EQ(Refusal({"softmax_cross_entropy { loss_weight: -1 }", {kScores, Labels({0, 1})}}),
            "loss_weight: expected 0 or more, got -1");
}

}  // namespace
}  // namespace gyre
