#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

TEST(Conv2d, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"conv2d { filters: 1 kernel: 2 }",
                    {Real({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9})}};
    layer.parameters = {{1, 2, 3, 4}, {100}};
    layer.output_gradient = {1, 0, 0, 10};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, (Shape{1, 2, 2, 1}));
    // A cross-correlation: 1*1 + 2*2 + 3*4 + 4*5 = 37.
    EXPECT_EQ(result.output, (Doubles{137, 147, 167, 177}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{1, 2, 0, 3, 14, 20, 0, 30, 40}));
    EXPECT_EQ(result.parameter_gradients[0], (Doubles{51, 62, 84, 95}));
    EXPECT_EQ(result.parameter_gradients[1], (Doubles{11}));
  }
}

// Canonical weights are (filter, channel, row, column) while images have channels last.
TEST(Conv2d, HandComputedChannels) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"conv2d { filters: 2 kernel: 1 kernel: 2 use_bias: false }",
                    {Real({1, 1, 2, 2}, {1, 10, 2, 20})}};
    // Filter 0: channel 0 [1 2], channel 1 [3 4]; filter 1: [5 6], [7 8].
    layer.parameters = {{1, 2, 3, 4, 5, 6, 7, 8}};
    layer.output_gradient = {1, -1};
    const RunResult result = Ran(layer, {.compute = compute});
    // 1*1 + 2*2 + 3*10 + 4*20;  5*1 + 6*2 + 7*10 + 8*20.
    EXPECT_EQ(result.output, (Doubles{115, 247}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{1 - 5, 3 - 7, 2 - 6, 4 - 8}));
    EXPECT_EQ(result.parameter_gradients[0], (Doubles{1, 2, 10, 20, -1, -2, -10, -20}));
  }
}

// The one weight that is not 0 is the last tap's, so that each output is a pixel, or padding.
TEST(Conv2d, StridesDilationsAndPaddingGoWhereTheyBelong) {
  Doubles pixels(4 * 5);
  std::iota(pixels.begin(), pixels.end(), 1);
  const struct {
    const char* window;
    Shape shape;
    Doubles y;
  } cases[] = {
      {"stride: [2, 1]", {1, 2, 3, 1}, {8, 9, 10, 18, 19, 20}},
      {"dilation: [2, 1]", {1, 2, 3, 1}, {13, 14, 15, 18, 19, 20}},
      {"dilation: [1, 2]", {1, 3, 1, 1}, {10, 15, 20}},
      {"padding: [1, 0, 0, 2]", {1, 4, 5, 1}, {3,  4,  5,  0, 0, 8,  9,  10, 0, 0,
                                               13, 14, 15, 0, 0, 18, 19, 20, 0, 0}},
      {"padding: [0, 1, 2, 0]", {1, 4, 5, 1}, {6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                               16, 17, 18, 19, 20, 0,  0,  0,  0,  0}},
      {"stride: [1, 2] dilation: [2, 1] padding: [1, 1, 1, 0]",
       {1, 4, 2, 1},
       {7, 9, 12, 14, 17, 19, 0, 0}},
  };
  for (const auto& c : cases) {
    for (const DType compute : kRealTypes) {
      const RunResult result =
          Ran({absl::StrCat("conv2d { use_bias: false filters: 1 kernel: [2, 3] ", c.window, " }"),
               {Real({1, 4, 5, 1}, pixels)},
               {{0, 0, 0, 0, 0, 1}}},
              {.compute = compute, .backward = false});
      EXPECT_EQ(result.output_shape, c.shape) << c.window;
      EXPECT_EQ(result.output, c.y) << c.window;
    }
  }
}

TEST(Conv2d, Contract) {
  CheckContract({"conv2d { filters: 3 kernel: 3 }", {Distinct({3, 4, 5, 2}, 1)}});
  CheckContract(
      {"conv2d { filters: 2 kernel: 3 stride: 2 padding: 1 }", {Distinct({3, 5, 4, 3}, 2)}});
  CheckContract(
      {"conv2d { filters: 2 kernel: 2 kernel: 3 dilation: 2 dilation: 1 use_bias: false }",
       {Distinct({3, 4, 4, 1}, 3)}});
  CheckContract(
      {"conv2d { filters: 4 kernel: 3 padding: 1 padding: 0 padding: 2 padding: 1 groups: 2 }",
       {Distinct({3, 3, 3, 4}, 4)}});
  CheckContract({"conv2d { filters: 3 kernel: 2 groups: 3 }", {Distinct({3, 3, 3, 3}, 5)}});
  CheckContract({"conv2d { filters: 1 kernel: 1 }", {Distinct({3, 1, 1, 1}, 6)}});
}

// Channels that fill vector registers and some that do not: blocked layouts, padded or not.  A GPU
// has none, and cuDNN takes seconds for a case's plans.
TEST(Conv2d, PrecisionsAgreeOnBlockedLayouts) {
  const std::vector<int64_t> all = {1, 3, 16, 17, 32}, some = {16, 17};
  for (const int64_t channels : NamedDevice() ? some : all) {
    for (const char* config : {"conv2d { filters: 20 kernel: 5 }",
                               "conv2d { filters: 33 kernel: 3 stride: 2 padding: 1 }"}) {
      CheckPrecisions({config, {Distinct({4, 9, 9, channels}, 7)}}, {.f32_tolerance = 1e-5});
    }
  }
}

TEST(Conv2d, DeclaresParameters) {
  const RunResult result =
      Ran({"conv2d { filters: 6 kernel: 3 kernel: 5 groups: 2 use_bias: false }",
           {Distinct({1, 5, 5, 4}, 1)}});
  const StateSpec& weight = result.spec.states[2];
  EXPECT_TRUE(result.spec.applied_activation);
  EXPECT_EQ(weight.name, "weight");
  EXPECT_EQ(weight.canonical, (Shape{6, 2, 3, 5}));
  EXPECT_EQ(weight.initializer.kind, Initializer::Kind::kXavier);
  EXPECT_EQ(weight.initializer.fan_in, 2 * 15);
  EXPECT_EQ(weight.initializer.fan_out, 3 * 15);
  // Multiply and add, 3 x 1 x 6 outputs, a window of 2 x 15.
  EXPECT_EQ(result.spec.forward_flops, 2 * 3 * 1 * 6 * 2 * 15);
  EXPECT_EQ(result.spec.backward_flops, 2 * result.spec.forward_flops);
}

// What is frozen has no gradient, and what only its gradient needs is not read or computed.
TEST(Conv2d, Frozen) {
  const std::string frozen = " { learning_rate_multiplier: 0 } ", weight = "weight" + frozen;
  for (const std::string& which : {weight, "bias" + frozen, weight + "bias" + frozen}) {
    CheckContract({"conv2d { filters: 3 kernel: 2 " + which + "}", {Distinct({2, 4, 3, 2}, 1)}});
  }
  const RunResult result =
      Ran({"conv2d { filters: 3 kernel: 2 " + weight + "}", {Distinct({2, 4, 3, 2}, 1)}});
  EXPECT_EQ(result.spec.states[0].backward, kNone);
  EXPECT_EQ(result.spec.backward_flops, result.spec.forward_flops);
}

// conv1d and conv2d of images one pixel high are one, and only the last two axes are a line's.
TEST(Conv1d, IsConv2dOfLines) {
  const struct {
    const char *lines, *images;
  } cases[] = {
      {"conv1d { filters: 4 kernel: 3 }", "conv2d { filters: 4 kernel: [1, 3] }"},
      {"conv1d { filters: 4 kernel: 3 stride: 2 padding: [2, 1] dilation: 2 groups: 2 }",
       "conv2d { filters: 4 kernel: [1, 3] stride: [1, 2] padding: [0, 0, 2, 1] dilation: [1, 2] "
       "groups: 2 }"},
      {"conv1d { filters: 2 kernel: 1 padding: 1 use_bias: false }",
       "conv2d { filters: 2 kernel: 1 padding: [0, 1] use_bias: false }"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.lines);
    TestInput x = Distinct({3, 2, 7, 4}, 1);
    LayerCase layer{c.lines, {x}};
    const RunResult lines = Ran(layer);
    x.shape = Shape{6, 1, 7, 4};
    const RunResult images = Ran({c.images, {x}, lines.parameters});
    const Shape& y = images.output_shape;
    EXPECT_EQ(lines.output_shape, (Shape{3, 2, y[2], y[3]}));
    EXPECT_EQ(lines.output, images.output);
    EXPECT_EQ(lines.input_gradients, images.input_gradients);
    EXPECT_EQ(lines.parameter_gradients, images.parameter_gradients);
    // Steps first: the samples' axis stays.
    layer.inputs[0] = Along(1, layer.inputs[0]);
    const RunResult steps_first = Ran(layer);
    EXPECT_EQ(steps_first.spec.states[1].batch_axis, 1);
    EXPECT_EQ(steps_first.output, lines.output);
  }
}

TEST(Conv1d, Contract) {
  CheckContract({"conv1d { filters: 3 kernel: 2 padding: 1 }", {Distinct({3, 5, 2}, 1)}});
  CheckContract(
      {"conv1d { filters: 2 kernel: 3 stride: 2 }", {Along(1, Distinct({2, 3, 7, 1}, 2))}});
}

TEST(Conv1d, DeclaresPyTorchsWeight) {
  const RunResult result =
      Ran({"conv1d { filters: 6 kernel: 5 groups: 2 }", {Distinct({1, 3, 8, 4}, 1)}});
  EXPECT_EQ(result.spec.states[2].canonical, (Shape{6, 2, 5}));
  EXPECT_EQ(result.spec.states[2].initializer.fan_in, 2 * 5);
  EXPECT_EQ(result.spec.states[2].initializer.fan_out, 3 * 5);
  EXPECT_TRUE(result.spec.applied_activation);
}

TEST(Conv1d, Errors) {
  const TestInput x = Distinct({2, 3, 4}, 1);
  EXPECT_EQ(Refusal({"conv1d { kernel: 2 }", {x}}), "filters: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"conv1d { filters: 2 }", {x}}), "kernel: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"conv1d { filters: 2 kernel: 2 stride: 0 }", {x}}),
            "stride: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"conv1d { filters: 2 kernel: 2 padding: [1, 2, 3] }", {x}}),
            "padding: expected one value, or before and after, got 3 values");
  EXPECT_EQ(Refusal({"conv1d { filters: 2 kernel: 3 dilation: 2 padding: [0, 1] }", {x}}),
            "kernel 5 exceeds padded input 4 (length, 3 dilated by 2)");
  EXPECT_EQ(Refusal({"conv1d { filters: 2 kernel: 1 }", {Distinct({2, 3}, 1)}}),
            "expects lines [N, ..., L, C], got [2, 3]");
  EXPECT_EQ(Refusal({"conv1d { filters: 2 kernel: 1 }", {Real({2, 0, 3}, {})}}),
            "expects lines of one pixel and channel or more, got [2, 0, 3]");
  EXPECT_EQ(Refusal({"conv1d { filters: 2 kernel: 1 }", {Along(1, x)}}),
            "expects samples along an axis before the last two, but those of [2, 3, 4] are along "
            "axis 1; transpose it");
}

TEST(Conv2d, Errors) {
  const TestInput x = Distinct({2, 3, 4, 4}, 1);
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 1 }", {Along(1, x)}}),
            "expects samples along axis 0, but those of input 0, [2, 3, 4, 4], are along axis 1; "
            "transpose it");
  EXPECT_EQ(Refusal({"conv2d { kernel: 2 }", {x}}), "filters: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 }", {x}}),
            "kernel: expected one value, or height and width, got 0 values");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: -1 }", {x}}),
            "kernel: expected 1 or more, got -1");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 5 padding: 0 padding: 1 }", {x}}),
            "kernel 5 exceeds padded input 3 (height)");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 3 dilation: 1 dilation: 2 }", {x}}),
            "kernel 5 exceeds padded input 4 (width, 3 dilated by 2)");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 2 padding: 1 padding: 1 padding: 1 }", {x}}),
            "padding: expected one value, height and width, or top, bottom, left, right, got 3 "
            "values");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 2 padding: -1 }", {x}}),
            "padding: expected 0 or more, got -1");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 2 stride: 1 stride: 2 stride: 3 }", {x}}),
            "stride: expected one value, or height and width, got 3 values");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 2 dilation: 0 }", {x}}),
            "dilation: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"conv2d { filters: 4 kernel: 2 groups: 3 }", {x}}),
            "groups 3 does not divide the 4 filters");
  EXPECT_EQ(Refusal({"conv2d { filters: 6 kernel: 2 groups: 3 }", {x}}),
            "groups 3 does not divide the input's 4 channels");
  EXPECT_EQ(Refusal({"conv2d { filters: 6 kernel: 2 groups: 0 }", {x}}),
            "groups: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 2 }", {Distinct({64, 10}, 1)}}),
            "expects images [N, H, W, C], got [64, 10]");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 1 }", {Real({2, 3, 3, 0}, {})}}),
            "expects images of one pixel and channel or more, got [2, 3, 3, 0]");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 2 }", {}}), "expects 1 input (images), got 0");
  EXPECT_EQ(Refusal({"conv2d { filters: 2 kernel: 2 }", {Labels({1})}}),
            "expects images of type F64, got I32");
  EXPECT_EQ(
      Refusal({"conv2d { filters: 2 kernel: 2 bias { initializer { constant { value: inf } } } }",
               {x}}),
      "bias: initializer constant value: expected a finite number, got inf");
}

}  // namespace
}  // namespace gyre
