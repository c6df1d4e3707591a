#include <gtest/gtest.h>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

TestInput Indices(const Shape& shape, Doubles values, int batch_axis = 0) {
  return Along(batch_axis, {shape, true, std::move(values)});
}

TEST(Embedding, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"embedding { vocabulary: 4 width: 2 }", {Indices({2, 2}, {3, 0, 3, 1})}};
    layer.parameters = {{1, 2, 3, 4, 5, 6, 7, 8}};
    layer.output_gradient = {1, 2, 4, 8, 16, 32, 64, 128};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, (Shape{2, 2, 2}));
    EXPECT_EQ(result.output, (Doubles{7, 8, 1, 2, 7, 8, 3, 4}));
    EXPECT_EQ(result.parameter_gradients[0], (Doubles{4, 8, 64, 128, 0, 0, 17, 34}));
  }
}

TEST(Embedding, Contract) {
  const ContractOptions once{.rounds_once = true};
  CheckContract({"embedding { vocabulary: 3 width: 9 }", {Labels({2, 0, 2, 2, 1})}}, once);
  CheckContract({"embedding { vocabulary: 5 width: 2 }", {Indices({3, 2}, {4, 0, 4, 4, 1, 0})}},
                once);
  CheckContract({"embedding { vocabulary: 2 width: 3 weight { learning_rate_multiplier: 0 } }",
                 {Labels({1, 0, 1})}},
                once);
}

// A row that many ask for: the same sum for any number of threads.
TEST(Embedding, SumsInOrder) {
  Doubles indices(3000);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i % 3 == 0 ? 1 : 0;
  const LayerCase layer{"embedding { vocabulary: 2 width: 200 }", {Indices({30, 100}, indices)}};
  for (const DType compute : kRealTypes) {
    EXPECT_EQ(Ran(layer, {.compute = compute}).parameter_gradients,
              Ran(layer, {.threads = 4, .compute = compute}).parameter_gradients);
  }
}

// The sample is named, samples first and times first; it has no value and no gradient.
TEST(Embedding, IndexOutOfRangeIsAFault) {
  for (const double bad : {-1, 4}) {
    const std::string layer = "embedding { vocabulary: 4 width: 2 }";
    for (const int axis : {0, 1}) {
      const RunResult result = Ran({layer, {Indices({2, 3}, {0, 1, 2, 3, 0, bad}, axis)}});
      EXPECT_EQ(result.fault.index(), axis == 0 ? 1 : 2);
      EXPECT_EQ(result.output[10], 0);
      EXPECT_EQ(result.spec.states[1].batch_axis, axis);
    }
  }
}

TEST(Embedding, DeclaresItsTable) {
  const RunResult result =
      Ran({"embedding { vocabulary: 4 width: 2 }", {Labels({1, 2})}}, {.compute = DType::kF16});
  const StateSpec &weight = result.spec.states[2], &sum = result.spec.states[3];
  EXPECT_EQ(weight.shape, (Shape{4, 2}));
  EXPECT_EQ(weight.initializer.kind, Initializer::Kind::kGaussian);
  EXPECT_EQ(weight.initializer.std, 0.02);
  EXPECT_EQ(sum.size_bytes(), 8 * sizeof(float));
  EXPECT_EQ(sum.forward, kNone);
}

TEST(Embedding, Errors) {
  const TestInput x = Labels({1, 2});
  EXPECT_EQ(Refusal({"embedding { width: 2 }", {x}}), "vocabulary: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"embedding { vocabulary: 2 }", {x}}), "width: expected 1 or more, got 0");
  const std::string good = "embedding { vocabulary: 2 width: 3 }";
  EXPECT_EQ(Refusal({good, {x, x}}), "expects 1 input (indices), got 2");
  EXPECT_EQ(Refusal({good, {Distinct({2}, 1)}}), "expects indices of type I32, got F64");
  const std::string indices = "expects indices [N, ...] of 1 to 5 axes, one or more a sample, got ";
  EXPECT_EQ(Refusal({good, {Indices({}, {1})}}), indices + "[]");
  EXPECT_EQ(Refusal({good, {Indices({2, 0}, {})}}), indices + "[2, 0]");
  EXPECT_EQ(Refusal({good, {Indices({1, 1, 1, 1, 1, 1}, {1})}}), indices + "[1, 1, 1, 1, 1, 1]");
  EXPECT_EQ(Refusal({"embedding { vocabulary: 2147483647 width: 2147483647 }", {x}}),
            "weight [2147483647, 2147483647] has more than 2^56 elements; make it smaller");
}

TEST(PositionalEmbedding, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"positional_embedding { length: 3 }",
                    {Real({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}};
    layer.parameters = {{10, 20, 30, 40, 50, 60}};
    layer.output_gradient = {1, 2, 4, 8, 16, 32, 64, 128};
    for (const int axis : {0, 1}) {
      layer.inputs[0].batch_axis = axis;
      const RunResult result = Ran(layer, {.compute = compute});
      EXPECT_EQ(result.output, axis == 0 ? (Doubles{11, 22, 33, 44, 15, 26, 37, 48})
                                         : (Doubles{11, 22, 13, 24, 35, 46, 37, 48}));
      EXPECT_EQ(result.input_gradients[0], layer.output_gradient);
      EXPECT_EQ(result.parameter_gradients[0],
                axis == 0 ? (Doubles{17, 34, 68, 136, 0, 0}) : (Doubles{5, 10, 80, 160, 0, 0}));
      EXPECT_EQ(result.spec.states[1].batch_axis, axis);
    }
  }
}

TEST(PositionalEmbedding, Contract) {
  const ContractOptions once{.rounds_once = true};
  CheckContract({"positional_embedding { length: 4 }", {Distinct({3, 4, 2}, 1)}}, once);
  CheckContract({"positional_embedding { length: 3 }", {Distinct({5, 2, 9}, 2)}}, once);
  CheckContract({"positional_embedding { length: 2 weight { learning_rate_multiplier: 0 } }",
                 {Distinct({3, 2, 1}, 3)}},
                once);
}

TEST(PositionalEmbedding, Errors) {
  const TestInput x = Distinct({2, 3, 4}, 1);
  EXPECT_EQ(Refusal({"positional_embedding {}", {x}}), "length: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"positional_embedding { length: 2 }", {x}}),
            "length: expected the 3 of the sequence or more, got 2");
  const std::string good = "positional_embedding { length: 5 }";
  EXPECT_EQ(Refusal({good, {x, x}}), "expects 1 input (x), got 2");
  EXPECT_EQ(Refusal({good, {Distinct({2, 3}, 1)}}),
            "expects x [N, T, width] or [T, N, width], got [2, 3] with samples along axis 0");
  TestInput last = x;
  last.batch_axis = 2;
  EXPECT_EQ(Refusal({good, {last}}),
            "expects x [N, T, width] or [T, N, width], got [2, 3, 4] with samples along axis 2");
  EXPECT_EQ(Refusal({good, {Distinct({2, 3, 0}, 1)}}), "width of x: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({good, {Distinct({2, 0, 3}, 1)}}), "times of x: expected 1 or more, got 0");
}

}  // namespace
}  // namespace gyre
