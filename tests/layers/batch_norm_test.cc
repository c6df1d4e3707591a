#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

// x = 1, 3 and 0, 4: means 2, variances 1 and 4; with dy = 1, 0 the gradient of x is
// scale / deviation (dy - 1/2 + h / 2), h = -1, 1: nothing.
TEST(BatchNorm, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"batch_norm { epsilon: 1e-12 }", {Real({2, 2}, {1, 0, 3, 4})}};
    layer.parameters = {{2, 1}, {0, -1}};
    layer.output_gradient = {1, 0, 0, 2};
    layer.buffers = {{1, 2}, {2, 4}};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_THAT(result.output, IsNear({-2, -2, 2, 0}, 1e-6));
    EXPECT_THAT(result.parameter_gradients[0], IsNear({-1, 2}, 1e-6));
    EXPECT_THAT(result.parameter_gradients[1], IsNear({1, 2}, 1e-6));
    EXPECT_THAT(result.input_gradients[0], IsNear({0, 0, 0, 0}, 1e-6));
    // Nine tenths of the old ones and a tenth of the batch's; its unbiased variances are 2 and 8.
    EXPECT_THAT(result.buffers[0], IsNear({1.1, 2}, 1e-6));
    EXPECT_THAT(result.buffers[1], IsNear({2, 4.4}, 1e-6));
  }
}

TEST(BatchNorm, TestsUseTheRunningStatistics) {
  LayerCase layer{"batch_norm { epsilon: 1 }", {Real({2, 1}, {7, 1})}};
  layer.parameters = {{2}, {10}}, layer.buffers = {{3}, {3}};
  const RunResult result = Ran(layer, {.train = false});
  EXPECT_EQ(result.output, (Doubles{14, 8}));
  EXPECT_EQ(result.buffers, layer.buffers);
}

// A channel far from 0 keeps its variance's digits in F32.
TEST(BatchNorm, LargeMeans) {
  LayerCase layer{"batch_norm { epsilon: 1e-12 }", {Real({2, 1}, {4096, 4098})}, {{1}, {0}}};
  EXPECT_THAT(Ran(layer, {.compute = DType::kF32}).output, IsNear({-1, 1}, 1e-3));
}

// Whatever the value and the deviation's factor, in training and in tests.
TEST(BatchNorm, ConstantChannelIsItsBias) {
  for (const double value : {100.0, 0.1, 12345.678}) {
    const double stored = static_cast<float>(value);
    LayerCase layer{"batch_norm {}", {Real({5, 1}, Doubles(5, stored))}};
    layer.parameters = {{3}, {0.25}};
    layer.buffers = {{stored}, {0}};
    layer.output_gradient = {1, 0, 0, 0, 0};
    for (const bool train : {true, false}) {
      const RunResult result = Ran(layer, {.compute = DType::kF32, .train = train});
      EXPECT_EQ(result.output, Doubles(5, 0.25)) << value << " " << train;
    }
  }
}

TEST(BatchNorm, OneElementAChannel) {
  const RunResult result = Ran({"batch_norm {}", {Real({1, 2}, {5, -7})}, {{1, 1}, {0.5, 2}}});
  EXPECT_THAT(result.output, IsNear({0.5, 2}, 1e-12));
  for (const double variance : result.buffers[1]) EXPECT_DOUBLE_EQ(variance, 0.9);
}

TEST(BatchNorm, NaNPasses) {
  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    const RunResult result = Ran({"batch_norm {}", {Real({3, 1}, {1, std::nan(""), 2})}},
                                 {.output_activation = activation});
    for (const double y : result.output) EXPECT_TRUE(std::isnan(y));
  }
}

TEST(BatchNorm, Frozen) {
  for (const auto& [frozen, index] : {std::pair("scale", size_t{0}), {"bias", size_t{1}}}) {
    const LayerCase layer{
        std::string("batch_norm { ") + frozen + " { learning_rate_multiplier: 0 } }",
        {Distinct({5, 3}, 1)}};
    const LayerCase trained{"batch_norm {}", {Distinct({5, 3}, 1)}};
    const RunResult a = Ran(layer), b = Ran(trained);
    EXPECT_TRUE(a.parameter_gradients[index].empty());
    EXPECT_EQ(a.parameter_gradients[1 - index], b.parameter_gradients[1 - index]);
    EXPECT_EQ(a.input_gradients, b.input_gradients);
  }
}

// Over the global batch: the same for any number of ranks.
TEST(BatchNorm, SynchronisedContract) {
  const std::string layer = "batch_norm { synchronised: true }";
  CheckContract({layer, {Distinct({3, 2, 3, 5}, 1)}});
  CheckContract({layer, {Along(1, Distinct({4, 3, 5}, 2))}});
}

// Over a rank's own samples, so ranks differ from one.
TEST(BatchNorm, LocalContract) {
  CheckContract({"batch_norm {}", {Distinct({3, 2, 3, 5}, 1)}}, {.ranks_agree = false});
}

TEST(BatchNorm, LocalRanksUseTheirOwnSamples) {
  const LayerCase layer{"batch_norm {}", {Distinct({4, 3, 2}, 1)}};
  const RunResult two = Ran(layer, {.ranks = 2}), first = Ran(Slice(layer, 0, 2));
  const Doubles half(two.output.begin(), two.output.begin() + two.output.size() / 2);
  EXPECT_EQ(half, first.output);
  EXPECT_EQ(two.buffers, first.buffers);
}

TEST(BatchNorm, Errors) {
  const TestInput x = Distinct({2, 3}, 1);
  const struct {
    LayerCase layer;
    const char* error;
  } cases[] = {
      {{"batch_norm {}", {}}, "expects 1 input (x), got 0"},
      {{"batch_norm {}", {Labels({1})}}, "expects x of type F64, got I32"},
      {{"batch_norm {}", {Distinct({2}, 1)}}, "expects inputs [N, ..., channels], got [2]"},
      {{"batch_norm {}", {Along(1, x)}}, "expects inputs [N, ..., channels], got [2, 3]"},
      {{"batch_norm { momentum: 1.5 }", {x}}, "momentum: expected 0 to 1, got 1.5"},
      {{"batch_norm { momentum: nan }", {x}}, "momentum: expected 0 to 1, got nan"},
      {{"batch_norm { epsilon: 0 }", {x}}, "epsilon: expected more than 0, got 0"},
      {{"batch_norm { scale { decay_multiplier: -1 } }", {x}},
       "scale.decay_multiplier: expected 0 or more, got -1"},
  };
  for (const auto& c : cases) EXPECT_EQ(Refusal(c.layer), c.error) << c.layer.config;
}

}  // namespace
}  // namespace gyre
