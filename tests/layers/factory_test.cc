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

// The schema's members, each without a field set: some layers want more, none may be unknown.
TEST(Factory, KnowsEveryTypeOfTheSchema) {
  const std::string no_type(FromText("name: 'x'").status().message());
  EXPECT_NE(no_type.find("expected a type, one of"), std::string::npos) << no_type;
  const auto* types = LayerConfig::descriptor()->FindOneofByName("type");
  ASSERT_GE(types->field_count(), 8);
  for (int i = 0; i < types->field_count(); ++i) {
    const std::string& name = types->field(i)->name();
    const auto layer = FromText(name + " {}");
    EXPECT_NE(layer.status().message(), no_type) << name;
    EXPECT_TRUE(layer.ok() || absl::IsInvalidArgument(layer.status())) << name;
    EXPECT_NE(no_type.find(name), std::string::npos) << no_type;
  }
}

}  // namespace
}  // namespace gyre
