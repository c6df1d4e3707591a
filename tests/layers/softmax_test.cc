#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// softmax [0, log 3] = [1/4, 3/4]; the sum of y dy is 1 + 6.
TEST(Softmax, HandComputed) {
  for (const DType compute : kRealTypes) {
    const double tolerance = compute == DType::kF64 ? 1e-15 : compute == DType::kF32 ? 1e-6 : 1e-2;
    LayerCase layer{"softmax {}", {Real({2, 2}, {0, std::log(3), 5, 5})}};
    layer.output_gradient = {4, 8, 1, 3};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_THAT(result.output, IsNear({0.25, 0.75, 0.5, 0.5}, tolerance));
    EXPECT_THAT(result.input_gradients[0], IsNear({-0.75, 0.75, -0.5, 0.5}, 2 * tolerance));
  }
}

TEST(Softmax, LargeScoresAndLongRows) {
  for (const DType compute : kRealTypes) {
    const RunResult large =
        Ran({"softmax {}", {Real({1, 3}, {8192, -8192, 8192})}}, {.compute = compute});
    EXPECT_EQ(large.output, (Doubles{0.5, 0, 0.5}));
    const RunResult masked =
        Ran({"softmax {}", {Real({1, 3}, {-kInf, 1, -kInf})}}, {.compute = compute});
    EXPECT_EQ(masked.output, (Doubles{0, 1, 0}));
  }
  const RunResult row = Ran({"softmax {}", {Distinct({3, 5003}, 1, 10)}}, {.compute = DType::kF32});
  double sum = 0;
  for (const double y : row.output) sum += y;
  EXPECT_NEAR(sum, 3, 1e-5);
}

TEST(Softmax, NaNAndInfinityReachTheWholeRow) {
  for (const DType compute : kRealTypes) {
    const double nan = std::nan("");
    const RunResult result =
        Ran({"softmax {}", {Real({4, 3}, {nan, 1, 2, 1, 2, kInf, -kInf, -kInf, -kInf, 1, nan, 3})}},
            {.compute = compute});
    for (const double y : result.output) EXPECT_TRUE(std::isnan(y));
  }
}

TEST(Softmax, Contract) {
  CheckContract({"softmax {}", {Distinct({5, 7}, 1)}});
  CheckContract({"softmax {}", {Distinct({3, 2, 5, 33}, 2)}});
  CheckContract({"softmax {}", {Along(1, Distinct({2, 3, 4}, 3))}});
  CheckContract({"softmax {}", {Distinct({3, 1}, 4)}});
}

TEST(Softmax, Errors) {
  EXPECT_EQ(Refusal({"softmax {}", {Distinct({2}, 1)}}),
            "expects x [..., channels] of two axes or more, got [2]");
  EXPECT_EQ(Refusal({"softmax {}", {Along(1, Distinct({2, 3}, 1))}}),
            "expects x [..., channels], but the samples of [2, 3] are along its last axis; "
            "transpose it");
  EXPECT_EQ(Refusal({"softmax {}", {Real({2, 0}, {})}}), "channels: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"softmax {}", {Labels({2, 1}, {0, 1})}}), "expects x of type F64, got I32");
}

}  // namespace
}  // namespace gyre
