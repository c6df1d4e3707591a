// What is left of a net that predicts.  That its numbers are those of an evaluation:
// tests/end_to_end/tools/predict_test.cc.
#include "engine/training/predict/prediction_net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kNet[] = R"(
    name: "t"
    input { name: "x" dims: [4, 4, 2] }
    input { name: "other" dims: [3] }
    input { name: "label" type: LABEL }
    layer { name: "conv" conv2d { filters: 2 kernel: 1 } }
    layer { name: "drop" phase: TRAIN dropout { rate: 0.5 } }
    layer { name: "flat" input: "conv" flatten {} }
    layer { name: "fc" dense { outputs: 3 } }
    layer { name: "loss" input: ["fc", "label"] softmax_cross_entropy {} }
    layer { name: "accuracy" input: ["fc", "label"] accuracy {} }
    layer { name: "beside" input: "other" dense { outputs: 1 } }
    layer { name: "logit" dense { outputs: 1 } }
    layer { name: "yes" input: ["logit", "label"] binary_cross_entropy {} })";

Parsed<NetConfig> Parse(const std::string& text) {
  return ParseNetText(text, "net.textproto").value();
}

// "name(what it reads)" of each layer.
std::vector<std::string> LayersOf(const NetConfig& net) {
  std::vector<std::string> layers;
  for (const LayerConfig& layer : net.layer()) {
    layers.push_back(absl::StrCat(layer.name(), "(", absl::StrJoin(layer.input(), " "), ")"));
  }
  return layers;
}

std::vector<std::string> InputsOf(const NetConfig& net) {
  std::vector<std::string> inputs;
  for (const InputConfig& input : net.input()) inputs.push_back(input.name());
  return inputs;
}

TEST(CutToPredict, KeepsWhatTheLossesReadBehindTheirSharesByDefault) {
  Parsed<NetConfig> net = Parse(kNet);
  const auto predictions = CutToPredict({}, "", net).value();
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[0].name, "fc");
  EXPECT_EQ(predictions[0].kind, Prediction::OutputKind::kClassShares);
  EXPECT_EQ(predictions[1].name, "logit");
  EXPECT_EQ(predictions[1].kind, Prediction::OutputKind::kShares);
  EXPECT_THAT(LayersOf(*net.message),
              ElementsAre("conv(x)", "flat(conv)", "fc(flat)", "beside(other)", "logit(beside)",
                          "predict-0-shares(fc)", "predict-0(predict-0-shares)",
                          "predict-1-shares(logit)", "predict-1(predict-1-shares)"));
  EXPECT_THAT(InputsOf(*net.message), ElementsAre("x", "other"));
}

TEST(CutToPredict, KeepsWhatALayerNeedsAndNoMore) {
  Parsed<NetConfig> net = Parse(kNet);
  const std::vector<std::string> outputs = {"flat", "conv"};
  EXPECT_EQ(CutToPredict(outputs, "", net).value()[1].kind, Prediction::OutputKind::kValues);
  EXPECT_THAT(LayersOf(*net.message),
              ElementsAre("conv(x)", "flat(conv)", "predict-0(flat)", "predict-1(conv)"));
  EXPECT_THAT(InputsOf(*net.message), ElementsAre("x"));
}

TEST(CutToPredict, Errors) {
  Parsed<NetConfig> net = Parse(kNet);
  const std::vector<std::string> near = {"fcc"}, training = {"drop"};
  EXPECT_THAT(
      CutToPredict(near, "", net).status().message(),
      HasSubstr("net.textproto: output \"fcc\": unknown layer \"fcc\"; did you mean \"fc\"?"));
  EXPECT_THAT(CutToPredict(training, "", net).status().message(),
              HasSubstr("unknown layer \"drop\""));
  Parsed<NetConfig> without =
      Parse("name: \"t\" input { name: \"x\" dims: 2 } layer { name: \"a\" relu {} }");
  EXPECT_THAT(CutToPredict({}, "", without).status().message(), HasSubstr("the net has no loss"));
}

TEST(AddClassShares, LeavesTheNetAndAddsARecord) {
  Parsed<NetConfig> net = Parse(kNet);
  const int layers = net.message->layer_size();
  const auto shares = AddClassShares("label", net).value();
  ASSERT_TRUE(shares.has_value());
  EXPECT_EQ(shares->name, "fc");
  EXPECT_EQ(net.message->layer_size(), layers + 2);
  EXPECT_FALSE(AddClassShares("other", net)->has_value());
  const std::string with_label(R"(
    name: "t" input { name: "x" dims: 2 } input { name: "label" LABEL }
    layer { name: "a" dense { outputs: 3 } }
    layer { name: "loss" input: ["a", "label"] softmax_cross_entropy {} })");
  Parsed<NetConfig> mixed = Parse(absl::StrReplaceAll(with_label, {{"LABEL", "dims: 3"}}));
  EXPECT_TRUE(AddClassShares("label", mixed)->has_value());
  Parsed<NetConfig> pixels =
      Parse(absl::StrReplaceAll(with_label, {{"LABEL", "dims: 3 type: LABEL"}}));
  EXPECT_FALSE(AddClassShares("label", pixels)->has_value());
}

}  // namespace
}  // namespace gyre
