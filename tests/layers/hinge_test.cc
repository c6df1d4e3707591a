#include <gtest/gtest.h>

#include <cmath>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

// The others exceed the label's score less the margin by 0.5 and not at all; by 3 and 2.
const TestInput kScores = Real({2, 3}, {1, 0.5, -2, 2, 0, 1});

TEST(Hinge, HandComputed) {
  const struct {
    const char* layer;
    double sum;        // of the losses of both rows, times the classes
    Doubles gradient;  // with dy = 6, which is samples times classes
  } cases[] = {
      {"hinge {}", 0.5 + 3 + 2, {-1, 1, 0, 1, -2, 1}},
      {"hinge { norm: L2 }", 0.25 + 9 + 4, {-1, 1, 0, 6, -10, 4}},
      {"hinge { margin: 4 }", 3.5 + 1 + 6 + 5, {-2, 1, 1, 1, -2, 1}},
      {"hinge { margin: 0 }", 2 + 1, {0, 0, 0, 1, -2, 1}},
  };
  for (const auto& c : cases) {
    for (const DType compute : kRealTypes) {
      LayerCase layer{c.layer, {kScores, Labels({0, 1})}};
      layer.output_gradient = {6};
      const RunResult result = Ran(layer, {.compute = compute});
      EXPECT_EQ(result.output_shape, Shape{});
      EXPECT_NEAR(result.output[0], RoundedTo(compute, {c.sum / 6})[0], 1e-15) << c.layer;
      EXPECT_NEAR(result.metric[0], c.sum / 3, 1e-15) << c.layer;
      EXPECT_EQ(result.metric[1], 2);
      EXPECT_EQ(result.input_gradients[0], c.gradient) << c.layer;
    }
  }
}

TEST(Hinge, LabelOutOfRangeIsAFault) {
  const RunResult result = Ran({"hinge {}", {kScores, Labels({0, 3})}});
  EXPECT_EQ(result.fault.index(), 1);
  EXPECT_EQ(result.metric[1], 1);
}

TEST(Hinge, NaNPasses) {
  const RunResult result = Ran({"hinge {}", {Real({1, 2}, {0, std::nan("")}), Labels({0})}});
  EXPECT_TRUE(std::isnan(result.output[0]));
}

TEST(Hinge, Contract) {
  for (const char* layer :
       {"hinge {}", "hinge { norm: L2 margin: 0.7 }", "hinge { ignore_label: 3 norm: L2 }"}) {
    CheckContract({layer, {Distinct({5, 7}, 1), Labels({0, 6, 3, 3, 1})}});
    CheckContract({layer, {Distinct({3, 1}, 2), Labels({0, 0, 0})}});
    CheckContract(
        {layer, {Along(1, Distinct({2, 3, 4}, 3)), Along(1, Labels({2, 3}, {0, 3, 1, 2, 2, 3}))}});
  }
}

TEST(Hinge, ContractOfWeights) {
  CheckContract(
      {"hinge { norm: L2 ignore_label: 3 }",
       {Distinct({5, 7}, 1), Labels({0, 6, 3, 3, 1}), SampleWeightsOf({0.75, 2, 1.5, 0, 0.5})}});
}

TEST(Hinge, Errors) {
  const TestInput labels = Labels({0, 1});
  EXPECT_EQ(Refusal({"hinge { margin: -1 }", {kScores, labels}}),
            "margin: expected 0 or more, got -1");
  EXPECT_EQ(Refusal({"hinge { loss_weight: -1 }", {kScores, labels}}),
            "loss_weight: expected 0 or more, got -1");
}

}  // namespace
}  // namespace gyre
