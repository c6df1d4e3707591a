// The nets of models/ can be planned, and have the parameters that their sources say.
#include <gtest/gtest.h>

#include "engine/training/model.h"

namespace gyre {
namespace {

struct Expected {
  const char* model;
  int64_t parameters, layers;
};

class ModelsTest : public testing::TestWithParam<Expected> {};

// torchvision counts 61,100,840 in alexnet and 132,863,336 in vgg11.
INSTANTIATE_TEST_SUITE_P(, ModelsTest,
                         testing::Values(Expected{"alexnet", 61100840, 8},
                                         Expected{"lenet", 431080, 4}, Expected{"mlp", 235146, 3},
                                         Expected{"vgg", 132863336, 11}),
                         [](const auto& info) { return std::string(info.param.model); });

TEST_P(ModelsTest, HasTheParametersOfItsSource) {
  const auto net = ParseNet("models/" + std::string(GetParam().model) + "/net.textproto");
  ASSERT_TRUE(net.ok()) << net.status();
  const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  const auto plan =
      PlanModel(*net, {.shape = {.global = 2}, .slots = {"momentum"}, .primitives = &primitives});
  ASSERT_TRUE(plan.ok()) << plan.status();
  int64_t parameters = 0, weights = 0;
  for (const Parameter& parameter : plan->parameters.all()) {
    parameters += parameter.spec.parts[0].shape.elements();
    weights += parameter.spec.name == "weight" ? 1 : 0;
  }
  EXPECT_EQ(parameters, GetParam().parameters);
  EXPECT_EQ(weights, GetParam().layers);
}

}  // namespace
}  // namespace gyre
