#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

const std::string kLayers[] = {"sigmoid {}", "tanh {}", "silu {}", "gelu {}",
                               "gelu { approximate: TANH }"};

// Each function and its slope, by PyTorch 2.15 in double.
TEST(Activation, ValuesOfPyTorch) {
  const struct {
    std::string layer;
    Doubles y, slope;  // at -2, 0, 1, 3
  } cases[] = {
      {"sigmoid {}",
       {0.1192029220221175, 0.5, 0.7310585786300049, 0.9525741268224334},
       {0.1049935854035065, 0.25, 0.1966119332414819, 0.0451766597309120}},
      {"tanh {}",
       {-0.9640275800758169, 0, 0.7615941559557649, 0.9950547536867305},
       {0.0706508248531644, 1, 0.4199743416140261, 0.0098660371654401}},
      {"silu {}",
       {-0.2384058440442351, 0, 0.7310585786300049, 2.8577223804672998},
       {-0.0907842487848955, 0.5, 0.9276705118714869, 1.0881041060151693}},
      // x Phi(x) and Phi(x) + x phi(x).
      {"gelu {}",
       {-0.0455002638963584, 0, 0.8413447460685430, 2.9959503059051098},
       {-0.0852318010781969, 0.5, 1.0833154705876864, 1.0119456472041839}},
      {"gelu { approximate: TANH }",
       {-0.0454023059122249, 0, 0.8411919906082768, 2.9963626079182268},
       {-0.0860992566236183, 0.5, 1.0829640838457826, 1.0115841666309695}},
  };
  for (const auto& c : cases) {
    LayerCase layer{c.layer, {Real({4}, {-2, 0, 1, 3})}};
    layer.output_gradient = {1, 1, 1, 1};
    for (const DType compute : {DType::kF64, DType::kF32}) {
      const RunResult result = Ran(layer, {.compute = compute});
      const double bound = compute == DType::kF64 ? 1e-13 : 1e-6;
      EXPECT_THAT(result.output, IsNear(c.y, bound)) << c.layer;
      EXPECT_THAT(result.input_gradients[0], IsNear(c.slope, bound)) << c.layer;
    }
  }
}

TEST(Activation, NaNPassesAndInfinitiesHaveLimits) {
  const struct {
    std::string layer;
    double below, above;
  } cases[] = {{"sigmoid {}", 0, 1}, {"tanh {}", -1, 1}};
  for (const DType compute : kRealTypes) {
    for (const std::string& text : kLayers) {
      LayerCase layer{text, {Real({1}, {std::nan("")})}};
      layer.output_gradient = {1};
      const RunResult result = Ran(layer, {.compute = compute});
      EXPECT_TRUE(std::isnan(result.output[0])) << text;
      EXPECT_TRUE(std::isnan(result.input_gradients[0][0])) << text;
    }
    for (const auto& c : cases) {
      LayerCase layer{c.layer, {Real({2}, {-kInf, kInf})}};
      layer.output_gradient = {1, 1};
      const RunResult result = Ran(layer, {.compute = compute});
      EXPECT_EQ(result.output, (Doubles{c.below, c.above})) << c.layer;
      EXPECT_EQ(result.input_gradients[0], (Doubles{0, 0})) << c.layer;
    }
  }
}

TEST(Activation, Contract) {
  for (const std::string& layer : kLayers) {
    SCOPED_TRACE(layer);
    CheckContract({layer, {Distinct({5, 7}, 1)}});
    CheckContract({layer, {Distinct({3, 2, 5, 1}, 2)}});
    CheckContract({layer, {Distinct({3}, 3)}});
    CheckContract({layer, {Along(1, Distinct({2, 3, 4}, 4))}});
  }
}

TEST(Activation, Errors) {
  for (const std::string& layer : kLayers) {
    EXPECT_EQ(Refusal({layer, {Distinct({2}, 1), Distinct({2}, 1)}}), "expects 1 input (x), got 2");
    EXPECT_EQ(Refusal({layer, {Labels({0, 1})}}), "expects x of type F64, got I32");
  }
}

}  // namespace
}  // namespace gyre
