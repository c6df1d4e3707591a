// OpenCV says of models what Gyre says, and an error in a model is found.
#include "engine/training/onnx/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/training/onnx/onnx_case.h"

namespace gyre {
namespace {

using testing::HasSubstr;

constexpr char kImage[] = "input { name: \"image\" dims: [8, 7, 4] } ";
constexpr char kSteps[] = "input { name: \"steps\" dims: [6, 4] } ";

struct Verified {
  const char* name;
  const char* input;
  const char* output;
  const char* layers;
};

class VerifyTest : public testing::TestWithParam<Verified> {};

INSTANTIATE_TEST_SUITE_P(, VerifyTest,
                         testing::Values(Verified{"Convolution", kImage, "d", R"(
          layer { name: "a" conv2d { filters: 6 kernel: [3, 2] padding: [1, 0, 0, 2] groups: 2 } }
          layer { name: "b" relu { negative_slope: 0.1 } }
          layer { name: "c" conv2d { filters: 3 kernel: 2 dilation: 2 stride: 2 } }
          layer { name: "d" relu { max: 0.5 } })"},
                                         Verified{"Pooling", kImage, "b", R"(
          layer { name: "a" pool2d { kernel: 3 stride: 2 padding: [1, 0, 2, 1] } }
          layer { name: "b" input: "a" pool2d { kind: AVERAGE kernel: 2 stride: 1 padding: [0, 1, 1, 0] } }
          layer { name: "c" pool2d { kind: AVERAGE global: true } })"},
                                         Verified{"Norms", kImage, "f", R"(
          layer { name: "a" lrn { size: 3 alpha: 0.5 } }
          layer { name: "b" batch_norm {} }
          layer { name: "c" silu {} } layer { name: "d" gelu {} }
          layer { name: "e" gelu { approximate: TANH } } layer { name: "f" tanh {} })"},
                                         Verified{"Classifier", kImage, "l", R"(
          layer { name: "a" conv2d { filters: 3 kernel: 2 } }
          layer { name: "b" conv2d { filters: 2 kernel: 1 } }
          layer { name: "c" input: ["a", "b"] concat {} }
          layer { name: "d" split { parts: 5 } }
          layer { name: "e" input: ["d:1", "d:4"] add {} }
          layer { name: "f" input: ["e", "d"] multiply {} }
          layer { name: "g" flatten {} } layer { name: "h" dropout {} }
          layer { name: "i" dense { outputs: 5 use_bias: false } } layer { name: "j" sigmoid {} }
          layer { name: "k" dense { outputs: 5 } } layer { name: "l" softmax {} })"},
                                         Verified{"Lines", kSteps, "d", R"(
          layer { name: "a" conv1d { filters: 6 kernel: 3 padding: [1, 2] } }
          layer { name: "b" relu {} } layer { name: "c" pool1d { kernel: 2 } }
          layer { name: "d" dense { outputs: 3 } })"},
                                         Verified{"Lstm", kSteps, "b", R"(
          layer { name: "a" lstm { hidden: 5 layers: 2 bidirectional: true } }
          layer { name: "b" dense { outputs: 3 } })"},
                                         Verified{"Gru", kSteps, "d", R"(
          layer { name: "a" gru { hidden: 5 bidirectional: true } }
          layer { name: "b" slice { axis: 1 begin: -1 } } layer { name: "c" flatten {} }
          layer { name: "d" dense { outputs: 3 } })"},
                                         Verified{"Attention", kSteps, "d", R"(
          layer { name: "a" dense { outputs: 12 } }
          layer { name: "b" attention { heads: 2 causal: true } }
          layer { name: "c" flatten {} } layer { name: "d" dense { outputs: 3 } })"}),
                         [](const auto& info) { return std::string(info.param.name); });

// With a normalization of each channel of pictures.
absl::StatusOr<std::unique_ptr<OnnxCase>> Case(const std::string& text,
                                               const OnnxOptions& options) {
  auto net = ParseNetText("name: \"t\" " + text, "net.textproto");
  RETURN_IF_ERROR(net.status());
  DataConfig data;
  NormalizationConfig& normalization = *data.add_normalization();
  normalization.set_input("image");
  for (const double mean : {0.5, 0.25, 0.0, 0.75}) normalization.add_mean(mean);
  normalization.add_std(0.5);
  return MakeOnnxCase(*std::move(net), data, options, /*seed=*/2);
}

TEST_P(VerifyTest, OpenCvAgrees) {
  for (const bool channels_first : {false, true}) {
    const auto made = *Case(absl::StrCat(GetParam().input, GetParam().layers),
                            {.outputs = {GetParam().output},
                             .keep_batch_norm = channels_first,
                             .channels_first = channels_first});
    ASSERT_EQ(BeyondOpenCv(made->model), "");
    for (const int64_t samples : {1, 3}) {
      const auto difference =
          DifferenceByOpenCv(made->model, made->source, samples, CpuPrimitives());
      ASSERT_TRUE(difference.ok()) << difference.status() << " of " << samples;
      EXPECT_LE(*difference, kOnnxTolerance) << samples << " " << channels_first;
    }
  }
}

TEST(Verify, FindsAWrongWeight) {
  auto made = *Case(absl::StrCat(kImage, R"(layer { name: "a" conv2d { filters: 2 kernel: 1 } })"),
                    {.outputs = {"a"}});
  std::string& weight = *made->model.mutable_graph()->mutable_initializer(4)->mutable_raw_data();
  weight[3] = static_cast<char>(weight[3] ^ 1);
  EXPECT_GT(DifferenceByOpenCv(made->model, made->source, 1, CpuPrimitives()).value(), 1e-3);
}

// A softmax hides what is added to all scores alike.
TEST(Verify, ComparesScoresBehindShares) {
  const std::string text = R"(
      input { name: "x" dims: 3 } input { name: "class" type: LABEL }
      layer { name: "scores" input: "x" dense { outputs: 4 } }
      layer { name: "loss" input: ["scores", "class"] softmax_cross_entropy {} })";
  for (const bool scores : {false, true}) {
    auto made = *Case(text, {});
    if (scores) {
      AddScores(made->source.predictions, *made->source.net.message);
      made->model = *MakeOnnx(made->source, CpuPrimitives());
    }
    EXPECT_EQ(made->model.graph().output_size(), scores ? 2 : 1);
    for (const bool wrong : {false, true}) {
      for (onnx::TensorProto& constant : *made->model.mutable_graph()->mutable_initializer()) {
        if (!wrong || constant.name() != "scores.bias") continue;
        float bias[4];
        std::memcpy(bias, constant.raw_data().data(), sizeof(bias));
        for (float& b : bias) b += 1;
        constant.set_raw_data(bias, sizeof(bias));
      }
      const auto difference = *DifferenceByOpenCv(made->model, made->source, 3, CpuPrimitives());
      EXPECT_EQ(difference > 1e-3, scores && wrong) << difference;
    }
  }
}

TEST(Verify, NamesWhatOpenCvDoesNotRead) {
  auto made = *Case(R"(input { name: "text" dims: 5 type: LABEL }
                       layer { name: "words" embedding { vocabulary: 9 width: 4 } }
                       layer { name: "norm" layer_norm {} } layer { name: "norm2" layer_norm {} })",
                    {.outputs = {"norm2"}});
  EXPECT_EQ(BeyondOpenCv(made->model),
            "the integers of \"text\", Gather of \"words\", LayerNormalization of \"norm\"");
}

TEST(Verify, SaysWhatOpenCvSays) {
  auto made = *Case(absl::StrCat(kImage, R"(layer { name: "a" conv2d { filters: 2 kernel: 1 } })"),
                    {.outputs = {"a"}});
  made->model.mutable_graph()->mutable_node(1)->set_op_type("Convolve");
  EXPECT_THAT(DifferenceByOpenCv(made->model, made->source, 1, CpuPrimitives()).status().message(),
              HasSubstr("OpenCV: "));
}

}  // namespace
}  // namespace gyre
