// What folding makes of a net and of its tensors, by hand, and what it leaves alone.  That a folded
// net measures what training saw: tests/end_to_end/runs/weights_test.cc.
#include "engine/training/model/fold_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::ElementsAre;

Parsed<NetConfig> Parse(const std::string& layers) {
  return *ParseNetText(absl::StrCat("name: \"t\" input { name: \"x\" dims: [4, 4, 2] } ", layers),
                       "net.textproto");
}

// "name(what it reads)" of each layer.
std::vector<std::string> LayersOf(const NetConfig& net) {
  std::vector<std::string> layers;
  for (const LayerConfig& layer : net.layer()) {
    layers.push_back(absl::StrCat(layer.name(), "(", absl::StrJoin(layer.input(), " "), ")"));
  }
  return layers;
}

TEST(FoldBatchNorms, TakesOutWhatAloneReadsAConvolutionOrDense) {
  Parsed<NetConfig> net = Parse(R"(
    layer { name: "conv" conv2d { filters: 2 kernel: 1 use_bias: false } }
    layer { name: "a" batch_norm { epsilon: 0.5 } }
    layer { name: "relu" relu {} }
    layer { name: "sum" input: ["a", "relu"] add {} }
    layer { name: "b" batch_norm {} }
    layer { name: "fc" dense { outputs: 3 } }
    layer { name: "c" batch_norm {} })");
  const auto folded = FoldBatchNorms(net).value();
  EXPECT_THAT(LayersOf(*net.message),
              ElementsAre("conv(x)", "relu(conv)", "sum(conv relu)", "b(sum)", "fc(b)"));
  ASSERT_EQ(folded.size(), 2);
  EXPECT_EQ(folded[0].into, "conv");
  EXPECT_EQ(folded[0].norm, "a");
  EXPECT_FALSE(folded[0].has_bias);
  EXPECT_EQ(folded[0].epsilon, 0.5);
  EXPECT_EQ(folded[1].into, "fc");
  EXPECT_TRUE(folded[1].has_bias);
  EXPECT_TRUE(net.message->layer(0).conv2d().use_bias());
}

TEST(FoldBatchNorms, TakesOutWhatReadsAConvolutionAlongTime) {
  auto net = *ParseNetText(R"(
    name: "t" input { name: "x" dims: [8, 2] }
    layer { name: "conv" conv1d { filters: 3 kernel: 3 use_bias: false } }
    layer { name: "norm" batch_norm {} })",
                           "net.textproto");
  const auto folded = FoldBatchNorms(net).value();
  EXPECT_THAT(LayersOf(*net.message), ElementsAre("conv(x)"));
  ASSERT_EQ(folded.size(), 1);
  EXPECT_FALSE(folded[0].has_bias);
  EXPECT_TRUE(net.message->layer(0).conv1d().use_bias());
}

TEST(FoldBatchNorms, LeavesOthersAlone) {
  for (const char* layers :
       {// Two readers.
        R"(layer { name: "fc" dense { outputs: 2 } } layer { name: "a" batch_norm {} }
              layer { name: "sum" input: ["fc", "a"] add {} })",
        R"(layer { name: "a" batch_norm {} })",
        R"(layer { name: "fc" dense { outputs: 2 } } layer { name: "r" relu {} }
              layer { name: "a" batch_norm {} })",
        // Parameters that another layer may have, too.
        R"(layer { name: "fc" dense { outputs: 2 weight { name: "w" } } }
              layer { name: "a" batch_norm {} })",
        R"(layer { name: "fc" dense { outputs: 2 } }
              layer { name: "a" batch_norm { scale { name: "s" } } })",
        R"(layer { name: "fc" dense { outputs: 2 } } layer { name: "a" batch_norm {} }
              layer { name: "b" input: "x" dense { outputs: 2 weight { name: "fc.weight" } } })"}) {
    Parsed<NetConfig> net = Parse(layers);
    const std::string before = net.message->DebugString();
    EXPECT_TRUE(FoldBatchNorms(net)->empty()) << layers;
    EXPECT_EQ(net.message->DebugString(), before);
  }
}

class FoldTensorsTest : public testing::Test {
 protected:
  FoldTensorsTest() {
    for (auto& [name, values] : values_) {
      const auto n = static_cast<int64_t>(values.size());
      const Shape shape = n == 6 ? Shape({2, 3}) : Shape({n});
      tensors_.push_back({name, {values.data(), shape, DType::kF64}});
    }
  }
  absl::StatusOr<TensorFile> Fold(std::vector<NamedTensor> tensors, bool has_bias) const {
    EXPECT_TRUE(WriteSafetensors(folder_ / "w", tensors).ok());
    const std::vector<FoldedNorm> folded = {
        {.into = "fc", .norm = "bn", .has_bias = has_bias, .epsilon = 1}};
    return FoldTensors(folded, *TensorFile::Read(folder_ / "w"));
  }
  std::vector<double> Values(const TensorFile& file, const std::string& name) const {
    const Tensor& tensor = *file.Find(name);
    return {tensor.as<double>(), tensor.as<double>() + tensor.elements()};
  }

  TempFolder folder_;
  std::map<std::string, std::vector<double>> values_ = {
      {"bn.bias", {10, 20}}, {"bn.running_mean", {5, 7}}, {"bn.running_variance", {3, 8}},
      {"bn.scale", {4, 9}},  {"fc.bias", {1, 2}},         {"fc.weight", {1, 2, 3, 4, 5, 6}},
      {"other.weight", {42}}};
  std::vector<NamedTensor> tensors_;
};

TEST_F(FoldTensorsTest, ByHand) {
  auto file = Fold(tensors_, /*has_bias=*/true).value();
  EXPECT_EQ(file.tensors().size(), 3);
  EXPECT_THAT(Values(file, "fc.weight"), ElementsAre(2, 4, 6, 12, 15, 18));
  EXPECT_THAT(Values(file, "fc.bias"), ElementsAre(2 * (1 - 5) + 10, 3 * (2 - 7) + 20));
  EXPECT_THAT(Values(file, "other.weight"), ElementsAre(42));
  file = Fold(tensors_, /*has_bias=*/false).value();
  EXPECT_THAT(Values(file, "fc.bias"), ElementsAre(2 * -5 + 10, 3 * -7 + 20));
}

TEST_F(FoldTensorsTest, NamesWhatDoesNotFit) {
  for (const char* name :
       {"bn.bias", "bn.running_mean", "bn.running_variance", "bn.scale", "fc.bias", "fc.weight"}) {
    const auto without = [&](std::optional<Tensor> other) {
      std::vector<NamedTensor> tensors;
      for (const NamedTensor& named : tensors_) {
        if (named.name != name) tensors.push_back(named);
        if (named.name == name && other) tensors.push_back({name, *other});
      }
      return std::string(Fold(tensors, /*has_bias=*/true).status().message());
    };
    EXPECT_EQ(without(std::nullopt),
              absl::StrCat("it holds no tensor \"", name, "\", so it belongs to another net"));
    if (std::string(name) == "bn.running_mean") continue;
    double three[3] = {};
    EXPECT_EQ(without(Tensor{three, Shape({3}), DType::kF64}),
              absl::StrCat("its tensor \"", name,
                           "\" is F64 [3], and \"bn.running_mean\" F64 [2], "
                           "so it belongs to another net"));
  }
  // A tensor of a type that cannot be read is not called absent.
  EXPECT_TRUE(Fold(tensors_, /*has_bias=*/true).ok());
  std::string bytes = ReadBytes(folder_ / "w");
  bytes.replace(bytes.find("gyre.crc32"), 10, "other.name");  // of the bytes that it had
  bytes.replace(bytes.find("F64", bytes.find("\"bn.bias\"")), 3, "I16");
  WriteBytes(folder_ / "w", bytes);
  const std::vector<FoldedNorm> folded = {
      {.into = "fc", .norm = "bn", .has_bias = true, .epsilon = 1}};
  EXPECT_EQ(FoldTensors(folded, *TensorFile::Read(folder_ / "w")).status().message(),
            "its tensor \"bn.bias\" has the unknown dtype \"I16\"");
}

}  // namespace
}  // namespace gyre
