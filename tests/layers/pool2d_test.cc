#include <gtest/gtest.h>

#include <cmath>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

TEST(Pool2d, HandComputedMaximum) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"pool2d { kernel: 2 stride: 1 }",
                    {Real({1, 3, 3, 1}, {1, 2, 3, 6, 5, 4, 7, 9, 8})}};
    layer.output_gradient = {1, 2, 4, 8};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, (Shape{1, 2, 2, 1}));
    EXPECT_EQ(result.output, (Doubles{6, 5, 9, 9}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{0, 0, 0, 1, 2, 0, 0, 12, 0}));
  }
}

// A NaN must reach the loss, where it is noticed, wherever in its window it is.
TEST(Pool2d, PassesNaNOn) {
  for (const DType compute : kRealTypes) {
    const double nan = std::nan("");
    const RunResult result = Ran({"pool2d { kernel: 2 }",
                                  {Real({1, 2, 8, 1}, {nan, 1, 2, nan, 3, 4, 5, 6,  //
                                                       7, 8, 9, 1, nan, 2, 3, nan})}},
                                 {.compute = compute});
    for (const double y : result.output) EXPECT_TRUE(std::isnan(y)) << DTypeName(compute);
  }
}

// The first of equal maxima in row-major order takes the whole gradient.
TEST(Pool2d, TiesGoToTheFirst) {
  LayerCase layer{"pool2d { kernel: 2 }", {Real({1, 2, 2, 1}, {3, 5, 5, 5})}};
  layer.output_gradient = {7};
  EXPECT_EQ(Ran(layer).input_gradients[0], (Doubles{0, 7, 0, 0}));
}

// Two channels are pooled apart; padding does not count: corners have one element, edges two.
TEST(Pool2d, HandComputedAverage) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"pool2d { kind: AVERAGE kernel: 2 stride: 1 padding: 1 }",
                    {Real({1, 2, 1, 2}, {2, 20, 4, 40})}};
    layer.output_gradient = {1, 0, 1, 0, 2, 4, 0, 0, 0, 0, 8, 0};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, (Shape{1, 3, 2, 2}));
    EXPECT_EQ(result.output, (Doubles{2, 20, 2, 20, 3, 30, 3, 30, 4, 40, 4, 40}));
    // First channel: 1 + 1 + 2 / 2 to the first row, 2 / 2 + 8 to the second.
    EXPECT_EQ(result.input_gradients[0], (Doubles{3, 2, 9, 2}));
  }
}

TEST(Pool2d, WindowsBeyondTheBorderAreLeftOut) {
  const RunResult result = Ran({"pool2d { kernel: 2 }", {Distinct({2, 5, 3, 1}, 1)}});
  EXPECT_EQ(result.output_shape, (Shape{2, 2, 1, 1}));
}

// x counts up row by row, so a window's maximum is its last pixel inside the image: by hand, with
// strides 2 and 1, a 3 x 2 window, one row of padding above and one column to the right.
TEST(Pool2d, StridesAndPaddingGoWhereTheyBelong) {
  const TestInput x = Real({1, 4, 3, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const std::string window = "kernel: [3, 2] stride: [2, 1] padding: [1, 0, 0, 1] ";
  for (const DType compute : kRealTypes) {
    const RunResult maximum = Ran({"pool2d { " + window + "}", {x}}, {.compute = compute});
    EXPECT_EQ(maximum.output_shape, (Shape{1, 2, 3, 1}));
    EXPECT_EQ(maximum.output, (Doubles{4, 5, 5, 10, 11, 11}));
    const RunResult average =
        Ran({"pool2d { kind: AVERAGE " + window + "}", {x}}, {.compute = compute});
    // (0 + 1 + 3 + 4) / 4, ..., (2 + 5) / 2;  (3 + 4 + 6 + 7 + 9 + 10) / 6, ..., (5 + 8 + 11) / 3.
    EXPECT_EQ(average.output, (Doubles{2, 3, 3.5, 6.5, 7.5, 8}));
  }
}

TEST(Pool2d, Contract) {
  CheckContract({"pool2d { kernel: 2 }", {Distinct({3, 4, 4, 3}, 1)}});
  CheckContract({"pool2d { kernel: 3 stride: 2 padding: 1 }", {Distinct({3, 5, 4, 2}, 2)}});
  CheckContract(
      {"pool2d { kernel: 2 kernel: 3 stride: 1 stride: 2 padding: 1 padding: 0 padding: 2 "
       "padding: 1 }",
       {Distinct({3, 3, 4, 2}, 3)}});
  CheckContract({"pool2d { kind: AVERAGE kernel: 2 }", {Distinct({3, 4, 4, 3}, 4)}});
  CheckContract(
      {"pool2d { kind: AVERAGE kernel: 3 stride: 2 padding: 1 }", {Distinct({3, 5, 4, 2}, 5)}});
  CheckContract({"pool2d { kernel: 1 }", {Distinct({3, 1, 1, 1}, 6)}});
  CheckContract({"pool2d { kind: AVERAGE kernel: 4 kernel: 1 }", {Distinct({3, 4, 3, 1}, 7)}});
}

// The window is the image; the stride does not matter.
TEST(Pool2d, Global) {
  for (const char* kind : {"MAX", "AVERAGE"}) {
    const std::string pool = std::string("pool2d { kind: ") + kind;
    const TestInput x = Distinct({3, 4, 5, 2}, 1);
    const RunResult global = Ran({pool + " global: true }", {x}});
    const RunResult windowed = Ran({pool + " kernel: 4 kernel: 5 }", {x}});
    EXPECT_EQ(global.output_shape, (Shape{3, 1, 1, 2}));
    EXPECT_EQ(global.output, windowed.output);
    EXPECT_EQ(global.input_gradients, windowed.input_gradients);
    CheckContract({pool + " global: true }", {x}});
  }
}

// The plan frees both: an average saves nothing, a maximum its positions.
TEST(Pool2d, BackwardReadsNeitherInputNorOutput) {
  for (const char* config : {"pool2d { kernel: 2 }", "pool2d { kind: AVERAGE kernel: 2 }"}) {
    const RunResult result = Ran({config, {Distinct({2, 4, 4, 1}, 1)}});
    EXPECT_EQ(result.spec.states[0].backward, kNone);
    EXPECT_EQ(result.spec.states[1].backward, kNone);
  }
}

TEST(Pool1d, HandComputed) {
  LayerCase layer{"pool1d { kernel: 2 stride: 1 padding: [1, 0] }",
                  {Real({1, 2, 3, 1}, {1, 3, 2, 6, 5, 4})}};
  layer.output_gradient = {1, 2, 4, 8, 16, 32};
  const RunResult maximum = Ran(layer);
  EXPECT_EQ(maximum.output_shape, (Shape{1, 2, 3, 1}));
  EXPECT_EQ(maximum.output, (Doubles{1, 3, 3, 6, 6, 5}));
  EXPECT_EQ(maximum.input_gradients[0], (Doubles{1, 6, 0, 24, 32, 0}));
  layer = {"pool1d { kind: AVERAGE global: true }", {Real({2, 3, 1}, {1, 3, 2, 6, 5, 4})}};
  const RunResult average = Ran(layer);
  EXPECT_EQ(average.output_shape, (Shape{2, 1, 1}));
  EXPECT_EQ(average.output, (Doubles{2, 5}));
}

TEST(Pool1d, Contract) {
  CheckContract({"pool1d { kernel: 3 stride: 2 padding: 1 }", {Distinct({3, 6, 2}, 1)}});
  CheckContract({"pool1d { kind: AVERAGE kernel: 2 }", {Along(1, Distinct({2, 3, 5, 2}, 2))}});
}

TEST(Pool1d, Errors) {
  const TestInput x = Distinct({2, 3, 4}, 1);
  EXPECT_EQ(Refusal({"pool1d {}", {x}}), "kernel: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"pool1d { global: true kernel: 2 }", {x}}),
            "global: its window is the whole line; remove kernel, stride and padding, or global");
  EXPECT_EQ(Refusal({"pool1d { kernel: 4 }", {x}}), "kernel 4 exceeds padded input 3 (length)");
  EXPECT_EQ(Refusal({"pool1d { kernel: 1 padding: 1 }", {x}}),
            "padding: expected less than the kernel 1, got 1");
}

TEST(Pool2d, Errors) {
  const TestInput x = Distinct({2, 3, 4, 1}, 1);
  EXPECT_EQ(Refusal({"pool2d {}", {x}}),
            "kernel: expected one value, or height and width, got 0 values");
  EXPECT_EQ(Refusal({"pool2d { kernel: 2 stride: 0 }", {x}}), "stride: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"pool2d { kernel: 5 }", {x}}), "kernel 5 exceeds padded input 3 (height)");
  EXPECT_EQ(Refusal({"pool2d { kernel: 2 padding: 2 }", {x}}),
            "padding: expected less than the kernel 2, got 2");
  EXPECT_EQ(
      Refusal({"pool2d { kernel: 2 kernel: 3 padding: 0 padding: 0 padding: 0 padding: 3 }", {x}}),
      "padding: expected less than the kernel 3, got 3");
  EXPECT_EQ(Refusal({"pool2d { kernel: 2 }", {Distinct({64, 10}, 1)}}),
            "expects images [N, H, W, C], got [64, 10]");
  EXPECT_EQ(Refusal({"pool2d { kernel: 2 padding: 1 }", {Real({2, 0, 3, 1}, {})}}),
            "expects images of one pixel and channel or more, got [2, 0, 3, 1]");
  for (const std::string field : {"kernel", "stride", "padding"}) {
    EXPECT_EQ(Refusal({"pool2d { global: true " + field + ": 1 }", {x}}),
              "global: its window is the whole image; remove kernel, stride and padding, or "
              "global");
  }
  EXPECT_EQ(Refusal({"pool2d { global: true }", {Along(1, x)}}),
            "expects samples along axis 0, but those of input 0, [2, 3, 4, 1], are along axis 1; "
            "transpose it");
  EXPECT_EQ(Refusal({"pool2d { kernel: 2 }", {x, x}}), "expects 1 input (images), got 2");
  EXPECT_EQ(Refusal({"pool2d { kernel: 2 }", {Labels({1})}}),
            "expects images of type F64, got I32");
}

}  // namespace
}  // namespace gyre
