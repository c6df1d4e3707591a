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
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, Shape{});
    EXPECT_NEAR(result.output[0], (std::log(2) + std::log(4.0 / 3)) / 2, tolerance);
    EXPECT_NEAR(result.metric[0], std::log(2) + std::log(4.0 / 3), 2 * tolerance);
    EXPECT_EQ(result.metric[1], 2);
    // 10 / 2 times [1/2, 1/2 - 1], [3/4 - 1, 1/4].
    const Doubles expected = {2.5, -2.5, -1.25, 1.25};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(result.input_gradients[0][i], expected[i], 10 * tolerance);
    }
  }
}

TEST(SoftmaxCrossEntropy, IgnoredSamplesCountForNothing) {
  LayerCase all{kPlain, {kScores, Labels({1, 0})}};
  LayerCase some{kIgnoring,
                 {Real({4, 2}, {0, 0, 9, 8, std::log(3), 0, 7, 5}), Labels({1, 255, 0, 255})}};
  const RunResult a = Ran(all), b = Ran(some);
  EXPECT_EQ(a.output, b.output);
  EXPECT_EQ(a.metric, b.metric);
  const Doubles &da = a.input_gradients[0], &db = b.input_gradients[0];
  EXPECT_EQ(db, (Doubles{da[0], da[1], 0, 0, da[2], da[3], 0, 0}));
  EXPECT_EQ(b.fault.word, Fault::kNone);
}

TEST(SoftmaxCrossEntropy, NothingCounted) {
  const LayerCase layer{kIgnoring, {kScores, Labels({255, 255})}};
  for (const int ranks : {1, 2}) {
    const RunResult result = Ran(layer, {.ranks = ranks});
    EXPECT_EQ(result.output, Doubles{0});
    EXPECT_EQ(result.metric, (Doubles{0, 0}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{0, 0, 0, 0}));
  }
}

// The other samples count as ever; the smallest bad sample is reported.
TEST(SoftmaxCrossEntropy, LabelOutOfRangeIsAFault) {
  for (const int32_t bad :
       {-1, 2, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const RunResult result = Ran({kPlain, {Distinct({4, 2}, 1), Labels({0, bad, 1, bad})}});
    EXPECT_EQ(result.fault.layer(), 7);
    EXPECT_EQ(result.fault.index(), 1);
    EXPECT_EQ(result.metric[1], 2);
    for (const size_t i : {2, 3, 6, 7}) EXPECT_EQ(result.input_gradients[0][i], 0);
    for (const size_t i : {0, 1, 4, 5}) EXPECT_NE(result.input_gradients[0][i], 0);
  }
}

// log p = log 1/2 of both classes, and log 3/4, log 1/4: with s = 1/4 the label's weigh 7/8.
TEST(SoftmaxCrossEntropy, LabelSmoothing) {
  const double log2 = std::log(2), log4_3 = std::log(4.0 / 3), log4 = std::log(4);
  for (const DType compute : kRealTypes) {
    const double tolerance = Tolerance(compute);
    LayerCase layer{"softmax_cross_entropy { label_smoothing: 0.25 }", {kScores, Labels({1, 0})}};
    layer.output_gradient = {16};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_NEAR(result.output[0], (log2 + 7.0 / 8 * log4_3 + 1.0 / 8 * log4) / 2, 2 * tolerance);
    // 16 / 2 times [1/2 - 1/8, 1/2 - 7/8], [3/4 - 7/8, 1/4 - 1/8].
    const Doubles expected = {3, -3, -1, 1};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(result.input_gradients[0][i], expected[i], 20 * tolerance);
    }
  }
}

// The same labels and scores as rows of any other axes; a bad label's sample is reported.
TEST(SoftmaxCrossEntropy, LabelsWithSeveralAxes) {
  const TestInput rows = Distinct({6, 4}, 5);
  const std::vector<int32_t> labels = {0, 3, 2, 255, 1, 7};
  const RunResult flat = Ran({kIgnoring, {rows, Labels(labels)}});
  EXPECT_EQ(flat.fault.index(), 5);
  const struct {
    Shape shape;
    int batch_axis;
    int64_t bad;  // sample of the last label
  } cases[] = {{{3, 2, 4}, 0, 2}, {{3, 2, 4}, 1, 1}, {{1, 3, 2, 4}, 1, 2}, {{6, 1, 1, 4}, 0, 5}};
  for (const auto& c : cases) {
    const Shape of_labels(c.shape.dims().first(c.shape.rank() - 1));
    const RunResult result = Ran({kIgnoring,
                                  {Along(c.batch_axis, Real(c.shape, rows.values)),
                                   Along(c.batch_axis, Labels(of_labels, labels))}});
    EXPECT_EQ(result.output, flat.output);
    EXPECT_EQ(result.metric, flat.metric);
    EXPECT_EQ(result.input_gradients, flat.input_gradients);
    EXPECT_EQ(result.fault.index(), c.bad);
  }
}

// Places of a sample count for the mean on every rank, also on one without samples.
TEST(SoftmaxCrossEntropy, NoPlaces) {
  const RunResult result = Ran({kPlain, {Real({3, 0, 2}, {}), Labels({3, 0}, {})}});
  EXPECT_EQ(result.output, Doubles{0});
}

TEST(SoftmaxCrossEntropy, LargeScores) {
  for (const DType compute : kRealTypes) {
    if (compute == DType::kBF16) continue;  // has no 1e4
    const RunResult result =
        Ran({kPlain, {Real({2, 2}, {1e4, -1e4, 1e4, -1e4}), Labels({0, 1})}}, {.compute = compute});
    EXPECT_EQ(result.output[0], 1e4);
    for (const double dx : result.input_gradients[0]) EXPECT_TRUE(std::isfinite(dx));
  }
}

TEST(SoftmaxCrossEntropy, Contract) {
  CheckContract({kPlain, {Distinct({5, 7}, 1), Labels({0, 6, 3, 3, 1})}});
  CheckContract({kPlain, {Distinct({3, 1}, 2), Labels({0, 0, 0})}});
  CheckContract({kIgnoring, {Distinct({5, 4}, 3), Labels({0, 255, 3, 255, 2})}});
  for (const int axis : {0, 1}) {
    for (const char* config :
         {kPlain, kIgnoring, "softmax_cross_entropy { label_smoothing: 0.1 ignore_label: 255 }"}) {
      CheckContract({config,
                     {Along(axis, Distinct({3, 5, 4}, 5)),
                      Along(axis, Labels({3, 5}, {0, 1, 2, 3, 0, 3, 1, 2, 0, 1, 1, 1, 3, 0, 2}))}});
    }
  }
  CheckContract({"softmax_cross_entropy { label_smoothing: 0.3 }",
                 {Distinct({5, 7}, 6), Labels({0, 6, 3, 3, 1})}});
  // The count differs from rank to rank, and one rank has nothing that counts.
  CheckContract({kIgnoring, {Distinct({7, 3}, 4), Labels({0, 255, 255, 255, 2, 1, 1})}});
}

TEST(SoftmaxCrossEntropy, DeclaresALoss) {
  const RunResult result = Ran(
      {"softmax_cross_entropy { loss_weight: 0.25 ignore_label: 0 }", {kScores, Labels({1, 0})}});
  EXPECT_EQ(result.spec.loss_output, 2);
  EXPECT_EQ(result.spec.loss_weight, 0.25);
  EXPECT_EQ(result.spec.forward_phases, 2);
  EXPECT_EQ(result.spec.states[static_cast<size_t>(result.spec.metric)].shape, Shape{2});
  EXPECT_EQ(result.spec.states[0].backward, kNone);  // scores: log softmax is saved
}

TEST(SoftmaxCrossEntropy, Errors) {
  EXPECT_EQ(Refusal({kPlain, {kScores}}), "expects 2 inputs (scores, labels), got 1");
  EXPECT_EQ(Refusal({kPlain, {kScores, kScores}}), "expects labels of type I32, got F64");
  EXPECT_EQ(Refusal({kPlain, {Distinct({2}, 1), Labels({0, 1})}}),
            "expects scores [..., classes] of two axes or more, got [2]");
  EXPECT_EQ(Refusal({kPlain, {Distinct({2, 2, 1}, 1), Labels({0, 1})}}),
            "expects labels [2, 2], one for each row of scores [2, 2, 1], got [2]");
  EXPECT_EQ(Refusal({kPlain, {Along(1, Distinct({2, 3}, 1)), Labels({0, 1})}}),
            "expects scores [..., classes], but the samples of [2, 3] are along its last axis; "
            "transpose it");
  EXPECT_EQ(Refusal({kPlain, {Along(1, Distinct({1, 2, 3}, 1)), Labels({1, 2}, {0, 1})}}),
            "expects samples along one axis, but those of input 0, [1, 2, 3], are along axis 1 and "
            "those of input 1, [1, 2], along axis 0; transpose one");
  EXPECT_EQ(Refusal({kPlain, {kScores, Labels({0, 1, 1})}}),
            "expects labels [2], one for each row of scores [2, 2], got [3]");
  EXPECT_EQ(Refusal({kPlain, {Real({2, 0}, {}), Labels({0, 1})}}),
            "classes: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"softmax_cross_entropy { loss_weight: -1 }", {kScores, Labels({0, 1})}}),
            "loss_weight: expected 0 or more, got -1");
  for (const char* smoothing : {"-0.1", "1", "nan"}) {
    const std::string config =
        "softmax_cross_entropy { label_smoothing: " + std::string(smoothing) + " }";
    EXPECT_EQ(Refusal({config, {kScores, Labels({0, 1})}}),
              "label_smoothing: expected at least 0 and below 1, got " + std::string(smoothing));
  }
}

}  // namespace
}  // namespace gyre
