// What models hold, without a program that reads them, and what is refused.
// That readers agree: onnx_judge_test, verify_test.
#include "engine/training/onnx/onnx_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "tests/data/temp_folder.h"
#include "tests/training/onnx/onnx_case.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

absl::StatusOr<std::unique_ptr<OnnxCase>> Case(const std::string& text,
                                               const OnnxOptions& options = {},
                                               const DataConfig& data = {}) {
  ASSIGN_OR_RETURN(auto net, ParseNetText("name: \"t\" " + text, "net.textproto"));
  return MakeOnnxCase(std::move(net), data, options, /*seed=*/1);
}

onnx::ModelProto Model(const std::string& text, const OnnxOptions& options = {},
                       const DataConfig& data = {}) {
  return Case(text, options, data).value()->model;
}

std::string Refusal(const std::string& text, const OnnxOptions& options) {
  return std::string(Case(text, options).status().message());
}

std::vector<std::string> Ops(const onnx::ModelProto& model) {
  std::vector<std::string> ops;
  for (const onnx::NodeProto& node : model.graph().node()) ops.push_back(node.op_type());
  return ops;
}

std::vector<float> Constant(const onnx::ModelProto& model, const std::string& name) {
  for (const onnx::TensorProto& constant : model.graph().initializer()) {
    if (constant.name() != name) continue;
    std::vector<float> numbers(constant.raw_data().size() / sizeof(float));
    std::memcpy(numbers.data(), constant.raw_data().data(), constant.raw_data().size());
    return numbers;
  }
  ADD_FAILURE() << name;
  return {};
}

constexpr char kImages[] = R"(
    input { name: "image" dims: [4, 6, 2] }
    input { name: "label" type: LABEL }
    layer { name: "conv" input: "image" conv2d { filters: 3 kernel: 1 } }
    layer { name: "norm" batch_norm {} }
    layer { name: "relu" relu {} }
    layer { name: "sum" input: ["relu", "norm"] add {} }
    layer { name: "pool" pool2d { kernel: 2 } }
    layer { name: "drop" dropout {} }
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 5 } }
    layer { name: "loss" input: ["fc", "label"] softmax_cross_entropy {} })";

TEST(OnnxModel, ImagesAreTransposedOnceOrNever) {
  const onnx::ModelProto rows = Model(kImages);
  EXPECT_THAT(Ops(rows), ElementsAre("Transpose", "Conv", "Relu", "Add", "MaxPool", "Flatten",
                                     "Gemm", "Softmax"));
  EXPECT_EQ(DescribeOnnx(rows), "the graph image [N, 4, 6, 2] -> fc.softmax [N, 5]");
  const onnx::ModelProto turned = Model(kImages, {.channels_first = true});
  EXPECT_THAT(Ops(turned),
              ElementsAre("Conv", "Relu", "Add", "MaxPool", "Flatten", "Gemm", "Softmax"));
  EXPECT_EQ(DescribeOnnx(turned), "the graph image [N, 2, 4, 6] -> fc.softmax [N, 5]");
  EXPECT_EQ(rows.ir_version(), 8);
  EXPECT_EQ(rows.opset_import(0).version(), 13);
}

TEST(OnnxModel, BatchNormIsKeptIfAsked) {
  EXPECT_THAT(Ops(Model(kImages, {.keep_batch_norm = true})),
              testing::Contains("BatchNormalization"));
}

// Columns in Gyre are pixel by pixel, and in ONNX channel by channel.
TEST(OnnxModel, DenseBehindFlattenIsPermuted) {
  const auto made = Case(kImages).value();
  const Tensor& own = *made->source.tensors.Find("fc.weight");
  const std::vector<float> written = Constant(made->model, "fc.weight");
  ASSERT_EQ(written.size(), 5u * 6 * 3);
  for (int64_t o = 0; o < 5; ++o) {
    for (int64_t p = 0; p < 6; ++p) {
      for (int64_t c = 0; c < 3; ++c) {
        EXPECT_EQ(written[o * 18 + c * 6 + p], own.as<float>()[o * 18 + p * 3 + c]);
      }
    }
  }
}

TEST(OnnxModel, OutputsHaveTheLayersNamesAndShapes) {
  const OnnxOptions options = {.outputs = {"pool", "flat", "image_again"}};
  const std::string net =
      absl::StrCat(kImages, R"(layer { name: "image_again" input: "image" dropout {} })");
  EXPECT_EQ(DescribeOnnx(Model(net, options)),
            "the graph image [N, 4, 6, 2] -> pool [N, 2, 3, 3], flat [N, 18], image_again [N, 4, "
            "6, 2]");
  OnnxOptions turned = options;
  turned.channels_first = true;
  EXPECT_EQ(DescribeOnnx(Model(net, turned)),
            "the graph image [N, 2, 4, 6] -> pool [N, 3, 2, 3], flat [N, 18], image_again [N, 2, "
            "4, 6]");
}

constexpr char kSteps[] = R"(
    input { name: "steps" dims: [5, 2] }
    input { name: "length" type: LABEL }
    layer { name: "norm" input: "steps" layer_norm {} }
    layer { name: "lstm" input: ["norm", "length"] lstm { hidden: 3 bidirectional: true } }
    layer { name: "place" positional_embedding { length: 5 } }
    layer { name: "attention" input: ["place", "place", "place"] attention { causal: true } }
    layer { name: "each" dense { outputs: 4 } }
    layer { name: "flat" flatten {} }
    layer { name: "all" dense { outputs: 1 } })";

TEST(OnnxModel, TimeIsFreeWhereNoWeightDependsOnIt) {
  const onnx::ModelProto free = Model(kSteps, {.outputs = {"each"}});
  EXPECT_EQ(DescribeOnnx(free), "the graph steps [N, T, 2], length [N] -> each [N, T, 4]");
  EXPECT_EQ(free.opset_import(0).version(), 17);
  const onnx::ModelProto fixed = Model(kSteps, {.outputs = {"all"}});
  EXPECT_EQ(DescribeOnnx(fixed), "the graph steps [N, 5, 2], length [N] -> all [N, 1]");
  EXPECT_THAT(Ops(fixed), Not(testing::Contains("Shape")));
}

TEST(OnnxModel, CarriedStatesAreInputsAndOutputs) {
  EXPECT_EQ(DescribeOnnx(Model(R"(
      input { name: "steps" dims: [5, 2] }
      layer { name: "lstm" input: "steps" lstm { hidden: 3 carry: true } })",
                               {.outputs = {"lstm"}})),
            "the graph steps [N, T, 2], lstm.hidden_l0 [N, 3], lstm.cell_l0 [N, 3] -> lstm [N, T, "
            "3], lstm.hidden_l0.next [N, 3], lstm.cell_l0.next [N, 3]");
}

TEST(OnnxModel, NormalizesInputs) {
  DataConfig data;
  NormalizationConfig& normalization = *data.add_normalization();
  normalization.set_input("image");
  for (const double mean : {0.5, 0.25}) normalization.add_mean(mean);
  for (const double std : {2, 4}) normalization.add_std(std);
  data.add_normalization()->set_input("gone");
  const onnx::ModelProto model = Model(kImages, {.channels_first = true}, data);
  EXPECT_EQ(Ops(model)[0], "BatchNormalization");
  EXPECT_THAT(Constant(model, "image.mean"), ElementsAre(0.5, 0.25));
  EXPECT_THAT(Constant(model, "image.variance"), ElementsAre(4, 16));
  // One transpose, ahead of it.
  EXPECT_EQ(Ops(Model(kImages, {}, data))[0], "Transpose");
  EXPECT_EQ(Ops(Model(kImages, {}, data))[1], "BatchNormalization");
}

// What predicts a normalized target is in the target's unit.
TEST(OnnxModel, UndoesTheNormalizationOfTargets) {
  DataConfig data;
  NormalizationConfig& normalization = *data.add_normalization();
  normalization.set_input("price");
  normalization.add_mean(7);
  normalization.add_std(3);
  const std::string net = R"(
      input { name: "row" dims: 4 } input { name: "price" dims: 1 }
      layer { name: "out" input: "row" dense { outputs: 1 } }
      layer { name: "loss" input: ["out", "price"] mean_squared_error {} })";
  EXPECT_THAT(Ops(Model(net, {}, data)), ElementsAre("Gemm", "Mul", "Add"));
  auto made = *Case(net, {}, data);
  const auto own = *OwnForward::Create(made->source, 2, CpuPrimitives());
  const HostTensors inputs = own->RandomInputs(1);
  const HostTensors outputs = *own->Run(inputs);
  const Tensor& weight = *made->source.tensors.Find("out.weight");
  double y = made->source.tensors.Find("out.bias")->as<float>()[0];
  for (int i = 0; i < 4; ++i) y += weight.as<float>()[i] * inputs.tensors[0].tensor.as<float>()[i];
  EXPECT_NEAR(outputs.tensors[0].tensor.as<float>()[0], 3 * y + 7, 1e-5);
}

TEST(OnnxModel, HoldsClasses) {
  auto made = *Case(kImages);
  made->source.classes = {"cat", "\"dog\""};
  const auto model = MakeOnnx(made->source, CpuPrimitives()).value();
  ASSERT_EQ(model.metadata_props_size(), 1);
  EXPECT_EQ(model.metadata_props(0).key(), "classes");
  EXPECT_EQ(model.metadata_props(0).value(), R"(["cat","\"dog\""])");
}

TEST(OnnxModel, IsRefusedByLayerAndReason) {
  EXPECT_THAT(Refusal(kImages, {.outputs = {"loss"}}),
              testing::AllOf(StartsWith("net.textproto:"), HasSubstr("output \"loss\""),
                             HasSubstr("is a loss or a metric, of no single sample")));
  EXPECT_THAT(Refusal(R"(input { name: "x" dims: [2, 2, 2, 3, 2] }
                         layer { name: "line" input: "x" conv1d { filters: 1 kernel: 2 } })",
                      {.outputs = {"line"}}),
              HasSubstr("layer \"line\": ONNX's readers slide windows over values of at most 5 "
                        "axes, and x has 6"));
  EXPECT_THAT(Refusal(R"(input { name: "x" dims: [2, 2, 2, 3] }
                         layer { name: "lrn" input: "x" lrn {} })",
                      {.outputs = {"lrn"}}),
              HasSubstr("layer \"lrn\": ONNX's readers take LRN of at most 4 axes, and x has 5"));
  EXPECT_THAT(Refusal(kImages + std::string(R"(layer { name: "z" input: "fc" noise { dims: 2 } })"),
                      {.outputs = {"z"}}),
              HasSubstr("layer \"z\": ONNX has random numbers, but none that a seed and a sample's "
                        "position give; std: 0 has a form"));
  EXPECT_THAT(Refusal(kImages, {.outputs = {"fc", "fc"}}),
              HasSubstr("output \"fc\": expected each output once, got it twice"));
}

TEST(OnnxModel, NeedsEveryParameter) {
  auto made = *Case(kImages);
  made->source.tensors = made->source.tensors.With({});
  EXPECT_THAT(MakeOnnx(made->source, CpuPrimitives()).status().message(),
              HasSubstr("\"conv.weight\""));
}

TEST(WriteOnnx, WritesWhatIsReadBack) {
  const TempFolder folder;
  const onnx::ModelProto model = Model(kImages);
  ASSERT_TRUE(WriteOnnx(folder / "m.onnx", model).ok());
  onnx::ModelProto read;
  ASSERT_TRUE(read.ParseFromString(*ReadFile(folder / "m.onnx")));
  EXPECT_EQ(read.SerializeAsString(), model.SerializeAsString());
  EXPECT_THAT(WriteOnnx(folder / "none/m.onnx", model).message(), HasSubstr("none"));
}

}  // namespace
}  // namespace gyre
