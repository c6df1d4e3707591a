// The nets of models/ can be planned, and have the parameters that their sources say.
#include <gtest/gtest.h>

#include "engine/training/model/model.h"

namespace gyre {
namespace {

struct Expected {
  const char* model;
  int64_t parameters, layers;
  double gmacs;  // 10^9 multiply-adds of convolutions and dense layers an image; 0: not published
};

class ModelsTest : public testing::TestWithParam<Expected> {};

// Parameters and multiply-adds as torchvision's documentation has them; alexnet_bvlc's as Caffe's
// nets and Sze et al. 2017, arXiv:1703.09039, table II; googlenet's with both auxiliary heads,
// whose 8 million multiply-adds are beside 1.58 billion; adamlike's counted by hand.
INSTANTIATE_TEST_SUITE_P(
    , ModelsTest,
    testing::Values(
        Expected{"adamlike", 118577686, 8, 1.94}, Expected{"alexnet", 61100840, 8, 0.71},
        Expected{"alexnet_bvlc", 60965224, 8, 0.72}, Expected{"deep_lstm", 17767205, 1, 0},
        Expected{"fashion_resnet", 272186, 22, 0}, Expected{"frnn", 501985, 4, 0},
        Expected{"gan", 135306, 7, 0}, Expected{"googlenet", 13378280, 64, 1.59},
        Expected{"gpt_small", 817920, 18, 0}, Expected{"imdb_lstm", 673345, 2, 0},
        Expected{"lenet", 431080, 4, 0}, Expected{"lstm_lm_300m", 300088316, 2, 0},
        Expected{"lstm_lm_small", 3622672, 1, 0}, Expected{"mlp", 235146, 3, 0},
        Expected{"mobilenet_v2", 3504872, 53, 0.30}, Expected{"photos", 11181642, 21, 0.15},
        Expected{"resnet18", 11689512, 21, 1.81}, Expected{"resnet50", 25557032, 54, 4.09},
        Expected{"table", 1313, 3, 0}, Expected{"vgg", 132863336, 11, 7.61},
        Expected{"vgg19", 143667240, 19, 19.63}),
    [](const auto& info) { return std::string(info.param.model); });

TEST_P(ModelsTest, HasTheParametersOfItsSource) {
  const auto net = ParseNet("models/" + std::string(GetParam().model) + "/net.textproto").value();
  const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  const auto plan =
      *PlanModel(net, {.shape = {.global = 2}, .slots = {"momentum"}, .primitives = &primitives});
  int64_t parameters = 0, weights = 0;
  for (const Parameter& parameter : plan.parameters.all()) {
    if (parameter.spec.kind != StateKind::kParameter) continue;  // running statistics
    parameters += parameter.spec.canonical.elements();
    const std::optional<ParameterSlice>& slice = parameter.spec.slice;
    weights += parameter.spec.name == "weight" || (slice && slice->first_row == 0) ? 1 : 0;
  }
  EXPECT_EQ(parameters, GetParam().parameters);
  EXPECT_EQ(weights, GetParam().layers);
  if (GetParam().gmacs == 0) return;
  double flops = 0;
  for (const NetNode& node : plan.train->spec.nodes) {
    const bool products = node.config->has_conv2d() || node.config->has_dense();
    if (products) flops += node.spec.forward_flops;
  }
  // Biases are additions of ours.
  EXPECT_NEAR(flops / 2 / 2e9, GetParam().gmacs, 0.005 + 0.003 * GetParam().gmacs);
}

}  // namespace
}  // namespace gyre
