#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

// Mean 2, variance 1, and so n = (-1, 1) / sqrt(1 + 3):
// y = 2 n + 10, 4 n + 20; g = s dy has the mean 3 and g n the mean 1/2.
TEST(LayerNorm, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{
        "layer_norm { epsilon: 3 }", {Real({1, 1, 2}, {1, 3})}, {{2, 4}, {10, 20}}, {1, 1}};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, (Shape{1, 1, 2}));
    EXPECT_EQ(result.output, (Doubles{9, 22}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{-0.375, 0.375}));
    EXPECT_EQ(result.parameter_gradients[0], (Doubles{-0.5, 0.5}));
    EXPECT_EQ(result.parameter_gradients[1], (Doubles{1, 1}));
  }
}

// A variance from squares of x itself would have no digit left.
TEST(LayerNorm, RowsFarFromZero) {
  LayerCase layer{"layer_norm { epsilon: 1e-9 }", {Real({1, 4}, {8192, 8193, 8194, 8195})}};
  layer.parameters = {{1, 1, 1, 1}, {0, 0, 0, 0}};
  const RunResult result = Ran(layer, {.compute = DType::kF32});
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(result.output[i], (i - 1.5) / std::sqrt(1.25), 1e-6);
}

TEST(LayerNorm, NaNReachesItsRow) {
  const RunResult result = Ran({"layer_norm {}", {Real({2, 2}, {1, std::nan(""), 1, 3})}});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(std::isnan(result.output[i]), i < 2);
}

TEST(LayerNorm, Contract) {
  const ContractOptions options{.rounds_once = true};
  CheckContract({"layer_norm {}", {Distinct({5, 7}, 1)}}, options);
  CheckContract({"layer_norm { epsilon: 0.1 }", {Distinct({3, 2, 2, 33}, 2)}}, options);
  CheckContract({"layer_norm {}", {Along(1, Distinct({2, 3, 4}, 3))}}, options);
  if (!NamedDevice()) CheckContract({"layer_norm {}", {Distinct({3, 1}, 4)}}, options);
  const std::string frozen = " { learning_rate_multiplier: 0 } ";
  for (const std::string& which :
       {"scale" + frozen, "bias" + frozen, "scale" + frozen + "bias" + frozen}) {
    CheckContract({"layer_norm { " + which + "}", {Distinct({3, 5}, 5)}}, options);
  }
}

// A row of one element is its mean.  So n is 0, y the bias, and dx 0 but for the rounding of s dy,
// which a GPU keeps in one of the two that it subtracts.  1 / sqrt(epsilon), 317, raises it.
TEST(LayerNorm, OneElementARow) {
  for (const DType compute : {DType::kF64, DType::kF32}) {
    LayerCase layer{"layer_norm {}", {Real({3, 1}, {5, -7, 0.3})}, {{0.7}, {0.5}}};
    layer.output_gradient = {0.3, -1.1, 1.3};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output, (Doubles{0.5, 0.5, 0.5}));
    const double unit = compute == DType::kF64 ? 0x1p-53 : 0x1p-24;
    for (const double dx : result.input_gradients[0]) EXPECT_LE(std::abs(dx), 317 * unit);
    EXPECT_EQ(result.parameter_gradients[0], Doubles{0});
    EXPECT_NEAR(result.parameter_gradients[1][0], 0.5, 8 * unit);
  }
}

TEST(LayerNorm, DeclaresItsParameters) {
  const RunResult result =
      Ran({"layer_norm { scale { decay_multiplier: 0 } }", {Distinct({2, 3, 4}, 1)}});
  const StateSpec &scale = result.spec.states[2], &bias = result.spec.states[3];
  EXPECT_EQ(scale.name, "scale");
  EXPECT_EQ(scale.shape, Shape{4});
  EXPECT_EQ(scale.decay_multiplier, 0);
  EXPECT_EQ(scale.initializer.value, 1);
  EXPECT_EQ(bias.name, "bias");
  EXPECT_EQ(bias.shape, Shape{4});
  EXPECT_EQ(bias.initializer.value, 0);
}

// Nothing is kept where nobody wants a gradient.
TEST(LayerNorm, Frozen) {
  const RunResult result = Ran({"layer_norm { scale { learning_rate_multiplier: 0 } bias { "
                                "learning_rate_multiplier: 0 } }",
                                {Distinct({2, 3}, 1)}},
                               {.input_gradients = false});
  for (const StateSpec& state : result.spec.states) EXPECT_EQ(state.backward, kNone);
}

TEST(LayerNorm, Errors) {
  const TestInput x = Distinct({2, 3}, 1);
  for (const char* epsilon : {"0", "-1", "nan"}) {
    const std::string layer = "layer_norm { epsilon: " + std::string(epsilon) + " }";
    EXPECT_EQ(Refusal({layer, {x}}), "epsilon: expected above 0, got " + std::string(epsilon));
  }
  EXPECT_EQ(Refusal({"layer_norm {}", {x, x}}), "expects 1 input (x), got 2");
  EXPECT_EQ(Refusal({"layer_norm {}", {Distinct({2}, 1)}}),
            "expects x [..., channels] of two axes or more, got [2]");
  EXPECT_EQ(Refusal({"layer_norm { scale { learning_rate_multiplier: -1 } }", {x}}),
            "scale.learning_rate_multiplier: expected 0 or more, got -1");
}

}  // namespace
}  // namespace gyre
