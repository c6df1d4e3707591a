#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

//  y0 = x W^T + b:  [1 2] [1 0 ; 3 -1 ; 2 2]^T + [10 20 30] = [1+10, 1+20, 6+30]
TEST(Dense, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"dense { outputs: 3 }", {Real({2, 2}, {1, 2, -1, 4})}};
    layer.parameters = {{1, 0, 3, -1, 2, 2}, {10, 20, 30}};
    layer.output_gradient = {1, 0, 2, -1, 3, 1};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, (Shape{2, 3}));
    EXPECT_EQ(result.output, (Doubles{11, 21, 36, 9, 13, 36}));
    // dy W: [1+4, 0+4]; [-1+9+2, -3+2].
    EXPECT_EQ(result.input_gradients[0], (Doubles{5, 4, 10, -1}));
    // dy^T x: rows [1 -1], [0 3], [2 1] times [1 2; -1 4].
    EXPECT_EQ(result.parameter_gradients[0], (Doubles{2, -2, -3, 12, 1, 8}));
    EXPECT_EQ(result.parameter_gradients[1], (Doubles{0, 3, 3}));
  }
}

TEST(Dense, KeepsTheOtherAxes) {
  const LayerCase images{"dense { outputs: 4 }", {Distinct({3, 2, 1, 5}, 1)}};
  LayerCase vectors = images;
  vectors.inputs[0].shape = Shape{6, 5};
  const RunResult a = Ran(images), b = Ran(vectors);
  EXPECT_EQ(a.output_shape, (Shape{3, 2, 1, 4}));
  EXPECT_EQ(a.output, b.output);
  EXPECT_EQ(a.parameter_gradients, b.parameter_gradients);
  EXPECT_EQ(a.input_gradients, b.input_gradients);
}

TEST(Dense, Contract) {
  CheckContract({"dense { outputs: 5 }", {Distinct({5, 7}, 1)}});
  CheckContract({"dense { outputs: 3 use_bias: false }", {Distinct({3, 2, 3, 1}, 2)}});
  CheckContract({"dense { outputs: 1 }", {Distinct({3, 1}, 3)}});
  CheckContract({"dense { outputs: 3 }", {Along(1, Distinct({2, 3, 4}, 4))}});
}

// As so many layers beside each other, with the parameters and the columns of each piece.
TEST(Dense, CutsALargeWeight) {
  constexpr int64_t kInputs = 4097, kOutputs = 2049, kRows = 3, kPiece = 704;
  const auto numbers = [](int64_t count, int64_t first) {
    Doubles numbers;
    for (int64_t i = 0; i < count; ++i) numbers.push_back(RandomCotangent(first + i));
    return RoundedTo(DType::kF32, numbers);
  };
  LayerCase cut{"dense { outputs: 2049 }", {Distinct({kRows, kInputs}, 1)}};
  cut.output_gradient = numbers(kRows * kOutputs, 0);
  for (int64_t first = 0; first < kOutputs; first += kPiece) {
    cut.parameters.push_back(
        numbers(std::min(kPiece, kOutputs - first) * kInputs, first * kInputs));
  }
  ASSERT_EQ(cut.parameters.size(), 3);
  const Doubles bias = numbers(kOutputs, 5);
  cut.parameters.push_back(bias);
  const RunResult result = Ran(cut, {.compute = DType::kF32});
  Doubles input_gradient(kRows * kInputs);
  for (size_t p = 0; p < 3; ++p) {
    const auto first = static_cast<int64_t>(p) * kPiece;
    const int64_t count = std::min(kPiece, kOutputs - first);
    const auto columns = [&](const Doubles& all) {
      Doubles some;
      for (int64_t row = 0; row < kRows; ++row) {
        const auto begin = all.begin() + row * kOutputs + first;
        some.insert(some.end(), begin, begin + count);
      }
      return some;
    };
    LayerCase whole{absl::StrCat("dense { outputs: ", count, " }"), cut.inputs};
    whole.parameters = {cut.parameters[p], {bias.begin() + first, bias.begin() + first + count}};
    whole.output_gradient = columns(cut.output_gradient);
    const RunResult expected = Ran(whole, {.compute = DType::kF32});
    EXPECT_EQ(columns(result.output), expected.output);
    EXPECT_EQ(result.parameter_gradients[p], expected.parameter_gradients[0]);
    const Doubles& biases = result.parameter_gradients[3];
    EXPECT_EQ(Doubles(biases.begin() + first, biases.begin() + first + count),
              expected.parameter_gradients[1]);
    for (size_t i = 0; i < input_gradient.size(); ++i) {
      input_gradient[i] += expected.input_gradients[0][i];
    }
  }
  EXPECT_THAT(result.input_gradients[0], IsNear(input_gradient, 1e-4));
}

TEST(Dense, CutsALargeWeightOfNoRows) {
  const RunResult result = Ran({"dense { outputs: 2049 }", {Distinct({0, 4097}, 1)}});
  for (const Doubles& gradient : result.parameter_gradients) {
    EXPECT_EQ(gradient, Doubles(gradient.size()));
  }
}

TEST(Dense, DeclaresParameters) {
  const RunResult result =
      Ran({"dense { outputs: 4 weight { learning_rate_multiplier: 2 decay_multiplier: 0.5 "
           "initializer { msra {} } } bias { initializer { constant { value: 3 } } } }",
           {Distinct({2, 6}, 1)}});
  const StateSpec &weight = result.spec.states[2], &bias = result.spec.states[3];
  EXPECT_EQ(weight.name, "weight");
  EXPECT_EQ(weight.shape, (Shape{4, 6}));
  EXPECT_EQ(weight.learning_rate_multiplier, 2);
  EXPECT_EQ(weight.decay_multiplier, 0.5);
  EXPECT_EQ(weight.initializer.kind, Initializer::Kind::kMsra);
  EXPECT_EQ(weight.initializer.fan_in, 6);
  EXPECT_EQ(weight.initializer.fan_out, 4);
  EXPECT_EQ(bias.name, "bias");
  EXPECT_EQ(bias.shape, Shape{4});
  EXPECT_EQ(bias.initializer.kind, Initializer::Kind::kConstant);
  EXPECT_EQ(bias.initializer.value, 3);
  EXPECT_TRUE(result.spec.applied_activation);
  EXPECT_EQ(result.spec.forward_flops, 2 * 2 * 6 * 4 + 2 * 4);
  EXPECT_EQ(result.spec.backward_flops, 2 * (2 * 2 * 6 * 4 + 2 * 4));
}

// The weight is not needed in backward of the first layer, so the plan may page it out.
TEST(Dense, ReadsInBackwardOnlyWhatItNeeds) {
  const RunResult first =
      Ran({"dense { outputs: 4 }", {Distinct({2, 6}, 1)}}, {.input_gradients = false});
  EXPECT_EQ(first.spec.states[0].backward, kRead);
  EXPECT_EQ(first.spec.states[1].backward, kNone);
  EXPECT_EQ(first.spec.states[2].backward, kNone);
  EXPECT_EQ(first.spec.backward_flops, 2 * 2 * 6 * 4 + 2 * 4);
}

// What is frozen has no gradient, and what only its gradient needs is not read or computed.
TEST(Dense, Frozen) {
  const std::string frozen = " { learning_rate_multiplier: 0 } ", weight = "weight" + frozen;
  for (const std::string& which : {weight, "bias" + frozen, weight + "bias" + frozen}) {
    CheckContract({"dense { outputs: 4 " + which + "}", {Distinct({3, 5}, 1)}});
  }
  const RunResult result = Ran({"dense { outputs: 4 " + weight + "}", {Distinct({2, 6}, 1)}});
  EXPECT_EQ(result.spec.states[0].backward, kNone);
  EXPECT_EQ(result.spec.backward_flops, 2 * 2 * 6 * 4 + 2 * 4);
}

TEST(Dense, Errors) {
  const TestInput x = Distinct({2, 3}, 1);
  EXPECT_EQ(Refusal({"dense {}", {x}}), "outputs: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"dense { outputs: -2 }", {x}}), "outputs: expected 1 or more, got -2");
  EXPECT_EQ(Refusal({"dense { outputs: 2 }", {x, x}}), "expects 1 input (x), got 2");
  EXPECT_EQ(Refusal({"dense { outputs: 2 }", {Labels({1})}}), "expects x of type F64, got I32");
  EXPECT_EQ(Refusal({"dense { outputs: 2 }", {x}}, {.compute = DType::kI32}),
            "computes in F64, F32, F16 or BF16, got I32");
  EXPECT_EQ(Refusal({"dense { outputs: 2 }", {Distinct({}, 1)}}),
            "expects x [..., inputs] of two axes or more, got []");
  EXPECT_EQ(Refusal({"dense { outputs: 2 }", {Distinct({3}, 1)}}),
            "expects x [..., inputs] of two axes or more, got [3]");
  EXPECT_EQ(Refusal({"dense { outputs: 2 }", {Real({3, 0}, {})}}),
            "inputs: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"dense { outputs: 2 }", {Along(1, Distinct({2, 3}, 1))}}),
            "expects x [..., inputs], but the samples of [2, 3] are along its last axis; transpose "
            "it");
  EXPECT_EQ(Refusal({"dense { outputs: 2 weight { learning_rate_multiplier: -1 } }", {x}}),
            "weight.learning_rate_multiplier: expected 0 or more, got -1");
  EXPECT_EQ(Refusal({"dense { outputs: 2 bias { decay_multiplier: inf } }", {x}}),
            "bias.decay_multiplier: expected 0 or more, got inf");
  EXPECT_EQ(Refusal({"dense { outputs: 2 weight { initializer { gaussian { std: -1 } } } }", {x}}),
            "weight: initializer gaussian std: expected 0 or more, got -1");
}

}  // namespace
}  // namespace gyre
