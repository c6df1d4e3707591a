#include <gtest/gtest.h>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

TestInput Sequences(const Shape& shape, uint64_t seed) { return Along(1, Distinct(shape, seed)); }

TEST(Concat, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"concat {}",
                    {Real({2, 1}, {1, 2}), Real({2, 2}, {3, 4, 5, 6}), Real({2, 1}, {7, 8})}};
    layer.output_gradient = {1, 2, 3, 4, 5, 6, 7, 8};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, (Shape{2, 4}));
    EXPECT_EQ(result.output, (Doubles{1, 3, 4, 7, 2, 5, 6, 8}));
    EXPECT_EQ(result.input_gradients, (std::vector<Doubles>{{1, 5}, {2, 3, 6, 7}, {4, 8}}));
  }
}

TEST(Split, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"split { sizes: [1, 2] }", {Real({2, 3}, {1, 2, 3, 4, 5, 6})}};
    layer.output_gradient = {1, 2, 3, 4, 5, 6};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output, (Doubles{1, 4, 2, 3, 5, 6}));
    EXPECT_EQ(result.output_sizes, (std::vector<int64_t>{2, 4}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{1, 3, 4, 2, 5, 6}));
  }
}

TEST(Slice, HandComputed) {
  const struct {
    const char* layer;
    Doubles y, dx;  // with dy = 1, 2, 3, 4
  } cases[] = {
      {"slice { begin: 1 end: 3 }", {2, 3, 6, 7}, {0, 1, 2, 0, 0, 3, 4, 0}},
      {"slice { begin: -2 }", {3, 4, 7, 8}, {0, 0, 1, 2, 0, 0, 3, 4}},
      {"slice { axis: 1 end: -2 }", {1, 2, 5, 6}, {1, 2, 0, 0, 3, 4, 0, 0}},
  };
  for (const auto& c : cases) {
    LayerCase layer{c.layer, {Real({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})}};
    layer.output_gradient = {1, 2, 3, 4};
    const RunResult result = Ran(layer);
    EXPECT_EQ(result.output, c.y) << c.layer;
    EXPECT_EQ(result.input_gradients[0], c.dx) << c.layer;
  }
}

// Labels too: a character and the one after it.
TEST(Slice, Labels) {
  const TestInput labels = Labels({2, 3}, {1, 2, 3, 4, 5, 6});
  const RunResult result = Ran({"slice { begin: 1 }", {labels}}, {.backward = false});
  EXPECT_EQ(result.output, (Doubles{2, 3, 5, 6}));
}

// Parts that lie together, and where vectors like them, are not copied.
TEST(Split, ViewsWhereTheLayoutAllows) {
  const struct {
    const char* layer;
    TestInput x;
    size_t views;
  } cases[] = {
      {"split { axis: 0 parts: 2 }", Sequences({2, 3, 16}, 1), 2},
      {"split { axis: 0 parts: 2 }", Sequences({2, 3, 5}, 1), 0},  // the second is misaligned
      {"split { axis: 1 parts: 2 }", Distinct({1, 2, 16}, 1), 2},
      {"split { axis: 1 parts: 2 }", Distinct({2, 2, 16}, 1), 0},
      {"slice { axis: 0 begin: 1 }", Sequences({2, 1, 8}, 1), 1},
  };
  for (const auto& c : cases) {
    const RunResult result = Ran({c.layer, {c.x}});
    EXPECT_EQ(result.spec.aliases.size(), c.views) << c.layer << c.x.shape.ToString();
    for (const Alias& alias : result.spec.aliases) EXPECT_TRUE(alias.must);
  }
}

TEST(Axes, Contract) {
  const ContractOptions once{.rounds_once = true};
  CheckContract({"concat {}", {Distinct({3, 2, 2}, 1), Distinct({3, 2, 3}, 2)}}, once);
  CheckContract({"concat { axis: 1 }", {Distinct({3, 2, 2}, 1), Distinct({3, 1, 2}, 2)}}, once);
  CheckContract({"concat { axis: 0 }", {Sequences({2, 3, 2}, 1), Sequences({4, 3, 2}, 2)}}, once);
  CheckContract({"concat { axis: 0 }", {Sequences({2, 1, 32}, 1), Sequences({1, 1, 32}, 2)}}, once);
  CheckContract({"split { sizes: [2, 1, 4] }", {Distinct({3, 2, 7}, 1)}}, once);
  CheckContract({"split { axis: 1 parts: 2 }", {Distinct({3, 4, 3}, 1)}}, once);
  CheckContract({"split { axis: 0 parts: 3 }", {Sequences({3, 5, 2}, 1)}}, once);
  CheckContract({"split { axis: 0 parts: 3 }", {Sequences({3, 1, 32}, 1)}}, once);
  CheckContract({"slice { begin: 1 end: 3 }", {Distinct({3, 2, 4}, 1)}}, once);
  CheckContract({"slice { axis: 0 begin: 1 end: 3 }", {Sequences({4, 1, 32}, 1)}}, once);
}

TEST(Axes, Errors) {
  const TestInput x = Distinct({2, 6}, 1);
  const struct {
    LayerCase layer;
    const char* error;
  } cases[] = {
      {{"concat {}", {x}}, "expects 2 to 64 inputs, got 1"},
      {{"split { parts: 2 }", {x, x}}, "expects 1 input, got 2"},
      {{"concat { axis: 2 }", {x, x}}, "axis: expected -2 to 1 for inputs [2, 6], got 2"},
      {{"slice { axis: -3 }", {x}}, "axis: expected -2 to 1 for inputs [2, 6], got -3"},
      {{"slice { axis: 0 }", {x}},
       "axis: expected another than that of the samples, got 0 for inputs [2, 6]"},
      {{"concat { axis: -2 }", {x, x}},
       "axis: expected another than that of the samples, got -2 for inputs [2, 6]"},
      {{"concat {}", {x, Distinct({2, 3, 2}, 1)}},
       "expects inputs of type F64 that differ along axis 1 alone, got [2, 6] F64 and [2, 3, 2] "
       "F64"},
      {{"concat { axis: 1 }", {Distinct({2, 6, 1}, 1), Distinct({2, 6, 2}, 1)}},
       "expects inputs of type F64 that differ along axis 1 alone, got [2, 6, 1] F64 and [2, 6, "
       "2] F64"},
      {{"concat {}", {x, Labels({1, 2})}},
       "expects inputs of type F64 that differ along axis 1 alone, got [2, 6] F64 and [2] I32"},
      {{"slice { begin: 6 }", {x}},
       "begin, end: expected 0 <= begin < end <= 6 along axis -1, got 6, 6"},
      {{"slice { begin: -7 }", {x}},
       "begin, end: expected 0 <= begin < end <= 6 along axis -1, got -1, 6"},
      {{"slice { begin: 2 end: 7 }", {x}},
       "begin, end: expected 0 <= begin < end <= 6 along axis -1, got 2, 7"},
      {{"split {}", {x}}, "parts: expected either parts or sizes"},
      {{"split { parts: 2 sizes: 3 }", {x}}, "parts: expected either parts or sizes"},
      {{"split { parts: 0 }", {x}}, "parts: expected 1 to 64, got 0"},
      {{"split { parts: 65 }", {x}}, "parts: expected 1 to 64, got 65"},
      {{"split { parts: 4 }", {x}},
       "parts: expected a divisor of the 6 elements along axis -1, got 4"},
      {{"split { sizes: [0, 6] }", {x}}, "sizes: expected 1 or more, got 0"},
      {{"split { sizes: [2, 3] }", {x}},
       "sizes: expected a sum of 6, the extent of axis -1, got 5"},
  };
  for (const auto& c : cases) EXPECT_EQ(Refusal(c.layer), c.error) << c.layer.config;
}

}  // namespace
}  // namespace gyre
