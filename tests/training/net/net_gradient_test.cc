// Gradients of whole nets, random ones among them, against finite differences in double.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/training/net/net_rank.h"

namespace gyre {
namespace {

// d loss / d parameter by central differences, on up to `samples` random elements a parameter.
void ExpectGradients(const std::string& layers, int samples = 12) {
  SCOPED_TRACE(layers);
  NetRank rank(layers);
  rank.Forward();
  rank.Backward();
  ASSERT_TRUE(rank.net().ClearCarried(rank.stream()).ok());  // as it was
  std::mt19937 random(1);
  for (size_t p = 0; p < rank.parameters().size(); ++p) {
    const Parameter& parameter = rank.parameters()[p];
    if (!parameter.trained()) continue;
    auto* values = rank.parameter(p).as<double>();
    const std::vector<double> gradient = rank.Gradient(p);
    double scale = 1e-3;  // gradients far below this are noise of the differences
    for (double g : gradient) scale = std::max(scale, std::abs(g));
    for (int s = 0; s < samples; ++s) {
      const size_t i = random() % gradient.size();
      constexpr double kStep = 1e-5;
      const double value = values[i];
      values[i] = value + kStep;
      const double above = rank.Loss();
      values[i] = value - kStep;
      const double below = rank.Loss();
      values[i] = value;
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-6 * scale)
          << parameter.name() << "[" << i << "]";
    }
  }
}

TEST(NetGradient, OfNets) {
  ExpectGradients(kConvNet);
  ExpectGradients(kForkedNet);
  ExpectGradients(kPartedNet);
  ExpectGradients(kJoinedNet);
  ExpectGradients(kSharedNet);
  ExpectGradients(kNormNet);
  // Gradients that sums pass on to a layer that reads them after another has made its own: that of
  // "relu" must not be cut off in their place, nor y's added there.
  ExpectGradients(R"(
    layer { name: "flat" flatten {} }
    layer { name: "a" input: "flat" dense { outputs: 6 } }
    layer { name: "b" input: "flat" dense { outputs: 6 } }
    layer { name: "c" input: "flat" dense { outputs: 6 } }
    layer { name: "d" input: "flat" dense { outputs: 6 } }
    layer { name: "inner" input: "c" input: "d" add {} }
    layer { name: "relu" relu {} }
    layer { name: "sum" input: "a" input: "relu" add {} }
    layer { name: "x" dense { outputs: 6 } }
    layer { name: "sum2" input: "b" input: "x" add {} }
    layer { name: "y" input: "x" dense { outputs: 6 } }
    layer { name: "sum3" input: "sum2" input: "y" add {} }
    layer { name: "out" dense { outputs: 4 } }
    layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })");
  // Through frozen layers.
  ExpectGradients(R"(
    layer { name: "a" conv2d { filters: 3 kernel: 3 weight { learning_rate_multiplier: 0 } } }
    layer { name: "b" relu { negative_slope: 0.1 } }
    layer { name: "flat" flatten {} }
    layer { name: "c" dense { outputs: 6 weight { learning_rate_multiplier: 0 }
                              bias { learning_rate_multiplier: 0 } } }
    layer { name: "d" dense { outputs: 4 bias { learning_rate_multiplier: 0 } } }
    layer { name: "loss" input: "d" input: "label" softmax_cross_entropy {} })");
  // Backward sees what forward has carried on from, and not what it leaves.
  ExpectGradients(R"(
    layer { name: "rows" reshape { dims: [6, 10] } }
    layer { name: "rnn" rnn { hidden: 5 carry: true } }
    layer { name: "lstm" lstm { hidden: 4 carry: true } }
    layer { name: "flat" flatten {} }
    layer { name: "out" dense { outputs: 4 } }
    layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })");
}

TEST(NetGradient, OfRandomNets) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 15; ++trial) {
    std::string text;
    std::vector<std::string> flat;  // names with values of shape [N, C]
    text += "layer { name: \"start\" input: \"image\" flatten {} } ";
    flat.push_back("start");
    const int layers = 3 + static_cast<int>(random() % 6);
    for (int l = 0; l < layers; ++l) {
      const std::string name = absl::StrCat("l", l);
      const std::string input = flat[random() % flat.size()];
      const std::string kinds[] = {absl::StrCat("dense { outputs: ", 2 + random() % 5, " }"),
                                   "relu { negative_slope: 0.3 }",
                                   "dropout { rate: 0.4 }",
                                   "noise { dims: 3 }",
                                   "flatten {}",
                                   "gelu {}",
                                   "layer_norm {}"};
      absl::StrAppend(&text, "layer { name: \"", name, "\" input: \"", input, "\" ",
                      kinds[random() % std::size(kinds)], " } ");
      flat.push_back(name);
    }
    // Every value feeds a loss, so nothing is without one, and the early ones have many consumers.
    for (size_t i = 1; i < flat.size(); ++i) {
      absl::StrAppend(&text, "layer { name: \"head", flat[i], "\" input: \"", flat[i],
                      "\" dense { outputs: 4 } } layer { name: \"loss", flat[i], "\" input: \"head",
                      flat[i], "\" input: \"label\" softmax_cross_entropy { loss_weight: 0.4 } } ");
    }
    ExpectGradients(text, 4);
  }
}

}  // namespace
}  // namespace gyre
