// Sums of 10^5 elements, which 16 bits cannot count: BF16 stops at 256 equal ones, F16 at 2048.
// They are F32's in every layer that has one, forward and backward.

#include <gtest/gtest.h>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

constexpr int64_t kMany = 100000;
// A gradient whose 10^5th part F16 holds as it does larger ones; and one of which it holds 10^5.
constexpr double kLarge = 8192, kSmall = 0.5;

Doubles Equal(double value, int64_t count = kMany) {
  return Doubles(static_cast<size_t>(count), value);
}

// Each value so many times, in turns.
Doubles Turns(double a, double b, size_t times) {
  Doubles values = Equal(a);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i / times % 2 == 0 ? a : b;
  return values;
}

void ExpectWideSums(const LayerCase& layer) {
  const RunResult wide = Ran(layer, {});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(layer.config + " " + std::string(DTypeName(dtype)));
    const RunResult narrow = Ran(layer, {.compute = dtype});
    CompareNear("output", wide.output, narrow.output, 0.01);
    for (size_t i = 0; i < wide.input_gradients.size(); ++i) {
      CompareNear("input gradient", wide.input_gradients[i], narrow.input_gradients[i], 0.01);
    }
    for (size_t i = 0; i < wide.parameter_gradients.size(); ++i) {
      CompareNear("gradient", wide.parameter_gradients[i], narrow.parameter_gradients[i], 0.01);
    }
    CompareNear("metric", wide.metric, narrow.metric, 0.01);
  }
}

TEST(WideSums, OfProducts) {
  ExpectWideSums({"dense { outputs: 1 }", {Real({1, kMany}, Equal(1))}, {Equal(0.5), {0.25}}, {1}});
  ExpectWideSums(
      {"dense { outputs: 1 }", {Real({kMany, 1}, Equal(1))}, {{1}, {0.25}}, Equal(kSmall)});
  ExpectWideSums({"conv2d { filters: 1 kernel: 1 }",
                  {Real({1, 400, 250, 1}, Equal(1))},
                  {{1}, {0.25}},
                  Equal(kSmall)});
  ExpectWideSums({"rnn { hidden: 1 nonlinearity: RELU }",
                  {Along(1, Real({1, kMany, 1}, Equal(1)))},
                  {{1}, {1}, {0}, {0}},
                  Equal(kSmall)});
}

TEST(WideSums, OfRowsAndColumns) {
  const Doubles x = Turns(1, 3, 1), dy = Turns(kSmall, 0.25, 2);
  ExpectWideSums({"batch_norm {}", {Real({kMany, 1}, x)}, {{1}, {0}}, dy});
  ExpectWideSums({"layer_norm {}", {Real({kMany / 4, 4}, x)}, {Equal(1, 4), Equal(0, 4)}, dy});
  ExpectWideSums({"layer_norm {}", {Real({1, kMany}, x)}, {Equal(1), Equal(0)}, dy});
  ExpectWideSums({"softmax {}", {Real({1, kMany}, Equal(1))}, {}, Turns(kLarge, -kLarge, 1)});
  ExpectWideSums(
      {"pool2d { kind: AVERAGE global: true }", {Real({1, 400, 250, 1}, Equal(1))}, {}, {kLarge}});
  ExpectWideSums({"positional_embedding { length: 1 }",
                  {Real({kMany, 1, 1}, Equal(1))},
                  {{0.5}},
                  Equal(kSmall)});
}

TEST(WideSums, OfEqualSymbols) {
  ExpectWideSums({"embedding { vocabulary: 2 width: 1 }",
                  {Labels(std::vector<int32_t>(kMany, 1))},
                  {{0.5, 0.25}},
                  Equal(kSmall)});
}

TEST(WideSums, OfLosses) {
  const Doubles ones = Equal(1);
  ExpectWideSums({"softmax_cross_entropy {}",
                  {Real({kMany, 2}, Equal(1, 2 * kMany)), Labels(std::vector<int32_t>(kMany, 1))},
                  {},
                  {kLarge}});
  ExpectWideSums({"softmax_cross_entropy {}", {Real({1, kMany}, ones), Labels({7})}, {}, {kSmall}});
  ExpectWideSums({"mean_squared_error {}",
                  {Real({kMany, 1}, ones), Real({kMany, 1}, Equal(0.5))},
                  {},
                  {kLarge}});
}

}  // namespace
}  // namespace gyre
