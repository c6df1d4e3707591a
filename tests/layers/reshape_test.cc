#include <gtest/gtest.h>

#include <string>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

TEST(Flatten, IsAView) {
  LayerCase layer{"flatten {}", {Real({2, 1, 3, 1}, {1, 2, 3, 4, 5, 6})}};
  layer.output_gradient = {6, 5, 4, 3, 2, 1};
  const RunResult result = Ran(layer);
  EXPECT_EQ(result.output_shape, (Shape{2, 3}));
  EXPECT_EQ(result.output, layer.inputs[0].values);
  EXPECT_EQ(result.input_gradients[0], layer.output_gradient);
  ASSERT_EQ(result.spec.aliases.size(), 1u);
  EXPECT_TRUE(result.spec.aliases[0].must);
  EXPECT_EQ(result.spec.aliases[0].input, 0);
  EXPECT_EQ(result.spec.aliases[0].output, 1);
}

TEST(Flatten, OneElementASample) {
  const RunResult result = Ran({"flatten {}", {Distinct({3}, 1)}});
  EXPECT_EQ(result.output_shape, (Shape{3, 1}));
}

TEST(Flatten, Contract) {
  CheckContract({"flatten {}", {Distinct({3, 2, 1, 5}, 1)}}, {.rounds_once = true});
}

TEST(Reshape, Shapes) {
  const struct {
    const char* layer;
    Shape expected;
  } cases[] = {
      {"reshape { dims: [3, 4] }", {2, 3, 4}},
      {"reshape { dims: [-1] }", {2, 12}},
      {"reshape { dims: [2, -1, 3] }", {2, 2, 2, 3}},
      {"reshape { dims: [12, -1] }", {2, 12, 1}},
  };
  for (const auto& c : cases) {
    const RunResult result = Ran({c.layer, {Distinct({2, 6, 2}, 1)}});
    EXPECT_EQ(result.output_shape, c.expected) << c.layer;
  }
}

TEST(Reshape, Contract) {
  CheckContract({"reshape { dims: [5, -1] }", {Distinct({3, 2, 1, 5}, 1)}}, {.rounds_once = true});
}

TEST(Transpose, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"transpose { axes: [0, 2, 1] }", {Real({1, 2, 3}, {1, 2, 3, 4, 5, 6})}};
    layer.output_gradient = {1, 2, 3, 4, 5, 6};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, (Shape{1, 3, 2}));
    EXPECT_EQ(result.output, (Doubles{1, 4, 2, 5, 3, 6}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{1, 3, 5, 2, 4, 6}));
  }
}

// The axis of samples moves with the others.
TEST(Transpose, Contract) {
  for (const char* axes : {"[0, 1, 2, 3]", "[1, 0, 2, 3]", "[3, 2, 1, 0]", "[0, 2, 3, 1]"}) {
    CheckContract({std::string("transpose { axes: ") + axes + " }", {Distinct({3, 2, 4, 5}, 1)}},
                  {.rounds_once = true});
  }
  const TestInput sequences = Along(1, Distinct({4, 3, 2}, 1));
  CheckContract({"transpose { axes: [1, 0, 2] }", {sequences}}, {.rounds_once = true});
}

TEST(Transpose, Labels) {
  const TestInput labels = Labels({3, 2}, {1, 2, 3, 4, 5, 6});
  const RunResult result = Ran({"transpose { axes: [1, 0] }", {labels}}, {.backward = false});
  EXPECT_EQ(result.output, (Doubles{1, 3, 5, 2, 4, 6}));
}

TEST(Reshape, Errors) {
  const TestInput x = Distinct({2, 6}, 1);
  const TestInput sequences = Along(1, Distinct({4, 3, 2}, 1));
  const struct {
    LayerCase layer;
    const char* error;
  } cases[] = {
      {{"flatten {}", {}}, "expects 1 input, got 0"},
      {{"flatten {}", {Distinct({}, 1)}}, "expects inputs [N, ...], got []"},
      {{"flatten {}", {Real({2, 3, 0}, {})}},
       "expects samples of one element or more, got [2, 3, 0]"},
      {{"flatten {}", {sequences}},
       "expects samples along axis 0, but those of input 0, [4, 3, 2], are along axis 1; "
       "transpose it"},
      {{"reshape {}", {x}}, "dims: expected 1 to 5 of them, got 0"},
      {{"reshape { dims: [1, 1, 1, 1, 1, 6] }", {x}}, "dims: expected 1 to 5 of them, got 6"},
      {{"reshape { dims: [-1, -1] }", {x}}, "dims: expected one -1 at most, for what is left"},
      {{"reshape { dims: [0] }", {x}}, "dims: expected 1 or more, got 0"},
      {{"reshape { dims: [5] }", {x}},
       "dims: expected the 6 elements of a sample of [2, 6] in all, got [5]"},
      {{"reshape { dims: [4, -1] }", {x}},
       "dims: expected the 6 elements of a sample of [2, 6] in all, got [4, -1]"},
      {{"reshape { dims: [2147483647, 2147483647, 2147483647] }", {x}},
       "dims: expected the 6 elements of a sample of [2, 6] in all, got [2147483647, 2147483647, "
       "2147483647]"},
      {{"transpose { axes: [0, 0] }", {x}}, "axes: expected each of 0 to 1 once, got [0, 0]"},
      {{"transpose { axes: [0, 2] }", {x}}, "axes: expected each of 0 to 1 once, got [0, 2]"},
      {{"transpose { axes: [0, -1] }", {x}}, "axes: expected each of 0 to 1 once, got [0, -1]"},
      {{"transpose { axes: [0, 1, 2] }", {x}},
       "axes: expected the 2 axes of [2, 6] in another order, got [0, 1, 2]"},
  };
  for (const auto& c : cases) EXPECT_EQ(Refusal(c.layer), c.error) << c.layer.config;
}

}  // namespace
}  // namespace gyre
