#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

LayerCase CaseOf(const std::string& layer, const Shape& shape, int inputs) {
  LayerCase c{layer, {}};
  for (int k = 0; k < inputs; ++k) c.inputs.push_back(Distinct(shape, 1 + k));
  return c;
}

TEST(Combine, HandComputed) {
  const struct {
    std::string layer;
    Doubles y;
    std::vector<Doubles> gradients;  // with dy = 1, 2, 3
  } cases[] = {
      {"add {}", {5, 0, -1}, {{1, 2, 3}, {1, 2, 3}}},
      {"multiply {}", {6, -4, 0}, {{3, -4, -3}, {2, 4, 0}}},
  };
  for (const auto& c : cases) {
    for (const DType compute : kRealTypes) {
      LayerCase layer{c.layer, {Real({3, 1}, {2, 2, 0}), Real({3, 1}, {3, -2, -1})}};
      layer.output_gradient = {1, 2, 3};
      const RunResult result = Ran(layer, {.compute = compute});
      EXPECT_EQ(result.output, c.y) << c.layer;
      EXPECT_EQ(result.input_gradients, c.gradients) << c.layer;
    }
  }
  const RunResult many = Ran({.config = "multiply {}",
                              .inputs = {Real({1}, {2}), Real({1}, {3}), Real({1}, {5})},
                              .output_gradient = {1}});
  EXPECT_EQ(many.output, Doubles{30});
  EXPECT_EQ(many.input_gradients, (std::vector<Doubles>{{15}, {10}, {6}}));
}

TEST(Combine, NaNPasses) {
  for (const char* layer : {"add {}", "multiply {}"}) {
    const RunResult result = Ran({layer, {Real({1}, {0}), Real({1}, {std::nan("")})}});
    EXPECT_TRUE(std::isnan(result.output[0])) << layer;
  }
}

TEST(Combine, Contract) {
  for (const char* layer : {"add {}", "multiply {}"}) {
    for (const int inputs : {2, 3, 8}) {
      SCOPED_TRACE(std::string(layer) + std::to_string(inputs));
      CheckContract(CaseOf(layer, {5, 7}, inputs), {.rounds_once = true});
    }
    CheckContract(CaseOf(layer, {3, 2, 5, 1}, 2), {.rounds_once = true});
    CheckContract({layer, {Along(1, Distinct({2, 3, 4}, 1)), Along(1, Distinct({2, 3, 4}, 2))}},
                  {.rounds_once = true});
  }
}

TEST(Combine, Errors) {
  for (const char* layer : {"add {}", "multiply {}"}) {
    EXPECT_EQ(Refusal(CaseOf(layer, {3, 2}, 1)), "expects 2 to 8 inputs, got 1");
    EXPECT_EQ(Refusal(CaseOf(layer, {3, 2}, 9)), "expects 2 to 8 inputs, got 9");
    EXPECT_EQ(Refusal({layer, {Distinct({2, 3}, 1), Distinct({2, 4}, 2)}}),
              "expects inputs of one shape, got [2, 3] and [2, 4]");
    EXPECT_EQ(Refusal({layer, {Distinct({3, 3}, 1), Along(1, Distinct({3, 3}, 2))}}),
              "expects samples along one axis, but those of input 0, [3, 3], are along axis 0 and "
              "those of input 1, [3, 3], along axis 1; transpose one");
    EXPECT_EQ(Refusal({layer, {Distinct({2}, 1), Labels({0, 1})}}),
              "expects input1 of type F64, got I32");
    EXPECT_EQ(Refusal(CaseOf(layer, {}, 2)), "expects inputs [N, ...], got []");
  }
}

}  // namespace
}  // namespace gyre
