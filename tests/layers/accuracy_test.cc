#include <gtest/gtest.h>

#include <cmath>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

Doubles Metric(const LayerCase& layer, const RunOptions& options = {.train = false}) {
  return Ran(layer, options).metric;
}

TEST(Accuracy, HandComputed) {
  const LayerCase layer{"accuracy {}",
                        {Real({4, 3}, {1, 3, 2, 5, 4, 4, 0, 0, 1, 7, 8, 9}), Labels({1, 1, 2, 0})}};
  for (const DType compute : kRealTypes) {
    const RunResult result = Ran(layer, {.compute = compute, .train = false});
    EXPECT_EQ(result.output_shape, Shape{});
    EXPECT_EQ(result.output, Doubles{0.5});
    EXPECT_EQ(result.metric, (Doubles{2, 4}));
  }
}

TEST(Accuracy, TopK) {
  const TestInput scores = Real({1, 4}, {4, 1, 3, 2});
  const std::vector<int> ranks = {1, 4, 2, 3};
  for (int32_t label = 0; label < 4; ++label) {
    for (int k = 1; k <= 4; ++k) {
      const std::string config = "accuracy { top_k: " + std::to_string(k) + " }";
      EXPECT_EQ(Metric({config, {scores, Labels({label})}})[0], ranks[label] <= k);
    }
  }
}

// Scores that are all equal would otherwise count every label as a hit.
TEST(Accuracy, TiesGoToTheLowerClass) {
  const TestInput scores = Real({3, 3}, Doubles(9, 0.5));
  EXPECT_EQ(Metric({"accuracy {}", {scores, Labels({0, 1, 2})}}), (Doubles{1, 3}));
  EXPECT_EQ(Metric({"accuracy { top_k: 2 }", {scores, Labels({0, 1, 2})}}), (Doubles{2, 3}));
}

TEST(Accuracy, NaNIsNeverRight) {
  const double nan = std::nan("");
  EXPECT_EQ(Metric({"accuracy {}", {Real({3, 2}, {nan, nan, nan, 1, 1, nan}), Labels({0, 1, 0})}}),
            (Doubles{0, 3}));
}

TEST(Accuracy, IgnoredAndBadLabels) {
  const TestInput scores = Real({4, 2}, {1, 0, 1, 0, 1, 0, 1, 0});
  const RunResult result =
      Ran({"accuracy { ignore_label: -1 }", {scores, Labels({0, -1, 2, 1})}}, {.train = false});
  EXPECT_EQ(result.metric, (Doubles{1, 2}));
  EXPECT_EQ(result.output, Doubles{0.5});
  EXPECT_EQ(result.fault.index(), 2);
}

// The first of equal shares; by weight.
TEST(Accuracy, DistributionsAndWeights) {
  const TestInput scores = Real({4, 2}, {1, 0, 1, 0, 1, 0, 0, 1});
  const TestInput shares = Real({4, 2}, {0.5, 0.5, 0.4, 0.6, 0.9, 0.1, 0, 0});
  EXPECT_EQ(Metric({"accuracy {}", {scores, shares}}), (Doubles{2, 4}));
  EXPECT_EQ(Metric({"accuracy {}", {scores, shares, SampleWeightsOf({0.5, 2, 0.25, 0})}}),
            (Doubles{0.75, 2.75}));
  const RunResult bad =
      Ran({"accuracy {}", {scores, Real({4, 2}, {1, 0, 0, std::nan(""), 0, 1, -1, 2})}},
          {.train = false});
  EXPECT_EQ(bad.metric, (Doubles{1, 2}));
  EXPECT_EQ(bad.fault.index(), 1);
}

TEST(Accuracy, Contract) {
  const ContractOptions options{.differentiable = false};
  CheckContract({"accuracy {}", {Distinct({5, 7}, 1), Labels({0, 6, 3, 3, 1})}}, options);
  CheckContract({"accuracy { top_k: 3 }", {Distinct({5, 7}, 1), Labels({0, 6, 3, 3, 1})}}, options);
  CheckContract({"accuracy {}", {Distinct({3, 1}, 2), Labels({0, 0, 0})}}, options);
  CheckContract({"accuracy {}",
                 {Distinct({5, 7}, 1), Positive({5, 7}, 2), SampleWeightsOf({1, 0, 2, 3, 0.5})}},
                options);
  CheckContract({"accuracy { ignore_label: 1 }", {Distinct({5, 2}, 3), Labels({0, 1, 1, 1, 0})}},
                options);
}

TEST(Accuracy, HasNoGradientAndNoLoss) {
  const RunResult result =
      Ran({"accuracy {}", {Distinct({2, 3}, 1), Labels({0, 1})}}, {.backward = false});
  EXPECT_EQ(result.spec.loss_output, -1);
  EXPECT_EQ(result.spec.metric, 3);
  for (const StateSpec& state : result.spec.states) EXPECT_EQ(state.backward, kNone);
}

TEST(Accuracy, Errors) {
  const TestInput scores = Distinct({2, 3}, 1), labels = Labels({0, 1});
  EXPECT_EQ(Refusal({"accuracy { top_k: 0 }", {scores, labels}}),
            "top_k: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"accuracy { top_k: 4 }", {scores, labels}}),
            "top_k: expected at most the 3 classes, got 4");
  EXPECT_EQ(Refusal({"accuracy {}", {labels, labels}}), "expects scores of type F64, got I32");
}

}  // namespace
}  // namespace gyre
