#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

// d = 2, 3, 2; y / d = 1/4, 0, 1/4, of which the windows hold 1/4, 1/2, 1/4.
TEST(Lrn, HandComputed) {
  for (const DType compute : kRealTypes) {
    const double tolerance = compute == DType::kF64 ? 1e-15 : compute == DType::kF32 ? 1e-6 : 1e-2;
    LayerCase layer{"lrn { size: 3 alpha: 3 beta: 1 }", {Real({1, 1, 1, 3}, {1, 0, 1})}};
    layer.output_gradient = {1, 1, 1};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_THAT(result.output, IsNear({0.5, 0, 0.5}, tolerance));
    EXPECT_THAT(result.input_gradients[0], IsNear({0, 1.0 / 3, 0}, tolerance));
  }
}

TEST(Lrn, Contract) {
  // The common window, which has a loop of its own, and others; fewer channels than it reaches.
  for (const char* layer : {"lrn { alpha: 2 }", "lrn { alpha: 2 k: 0.5 beta: 0.5 }",
                            "lrn { size: 3 alpha: 1 }", "lrn { size: 1 alpha: 0.5 beta: 0 }"}) {
    CheckContract({layer, {Distinct({3, 2, 2, 7}, 1)}});
    CheckContract({layer, {Distinct({3, 1, 1, 2}, 2)}});
    CheckContract({layer, {Along(1, Distinct({2, 3, 35}, 3))}});
  }
}

TEST(Lrn, SavesNothingWhereThereIsNoGradient) {
  const RunResult result = Ran({"lrn {}", {Distinct({2, 3}, 1)}}, {.input_gradients = false});
  EXPECT_EQ(result.spec.states.size(), 2u);
}

// A window beyond all channels takes no longer than they are.
TEST(Lrn, TheLargestWindow) {
  const TestInput x = Distinct({2, 3}, 1);
  const RunResult all = Ran({"lrn { size: 5 alpha: 0 beta: 1 }", {x}});
  EXPECT_EQ(all.output, Ran({"lrn { size: 2147483647 alpha: 0 beta: 1 }", {x}}).output);
}

TEST(Lrn, Errors) {
  const TestInput x = Distinct({2, 3}, 1);
  const struct {
    const char *field, *error;
  } cases[] = {
      {"size: 0", "size: expected 1 or more, got 0"},
      {"size: 4", "size: expected an odd number, got 4"},
      {"alpha: -1", "alpha: expected 0 or more, got -1"},
      {"beta: nan", "beta: expected 0 or more, got nan"},
      {"k: 0", "k: expected above 0, got 0"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Refusal({std::string("lrn { ") + c.field + " }", {x}}), c.error);
  }
  EXPECT_EQ(Refusal({"lrn {}", {x, x}}), "expects 1 input (x), got 2");
  EXPECT_EQ(Refusal({"lrn {}", {Distinct({2}, 1)}}),
            "expects x [..., channels] of two axes or more, got [2]");
}

}  // namespace
}  // namespace gyre
