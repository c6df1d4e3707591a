#include "layers/factory.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace gyre {
namespace {

absl::StatusOr<std::unique_ptr<Layer>> FromText(const std::string& text) {
  LayerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return CreateLayer(config);
}

TEST(Factory, MakesEveryType) {
  for (const char* text :
       {"accuracy {}", "conv2d { filters: 1 kernel: 1 }", "dense { outputs: 1 }", "dropout {}",
        "flatten {}", "pool2d { kernel: 2 }", "relu {}", "softmax_cross_entropy {}"}) {
    const auto layer = FromText(text);
    ASSERT_TRUE(layer.ok()) << text << ": " << layer.status();
    EXPECT_NE(*layer, nullptr);
  }
}

TEST(Factory, EveryMemberOfTheOneofIsTried) {
  EXPECT_EQ(LayerConfig::descriptor()->FindOneofByName("type")->field_count(), 8)
      << "add the new layer to the test above";
}

TEST(Factory, NoType) {
  const auto layer = FromText("name: 'x'");
  EXPECT_EQ(layer.status(),
            absl::InvalidArgumentError("expected a type, one of accuracy, conv2d, dense, dropout, "
                                       "flatten, pool2d, relu, softmax_cross_entropy"));
}

TEST(Factory, PassesErrorsOn) {
  EXPECT_TRUE(absl::IsInvalidArgument(FromText("dropout { rate: 2 }").status()));
}

}  // namespace
}  // namespace gyre
