#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Relu, HandComputed) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"relu {}", {Real({2, 3}, {-1, 0, 2, 3, -4, 0.5})}};
    layer.output_gradient = {1, 2, 3, 4, 5, 6};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output, (Doubles{0, 0, 2, 3, 0, 0.5}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{0, 0, 3, 4, 0, 6}));
  }
}

// 0.3 is no number of any type.
TEST(Relu, Max) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"relu { max: 0.3 negative_slope: 0.5 }",
                    {Real({6}, {-2, 0.25, 0.5, kInf, -kInf, std::nan("")})}};
    layer.output_gradient = {2, 3, 4, 5, 6, 7};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output[0], -1);
    EXPECT_EQ(result.output[1], 0.25);
    EXPECT_NEAR(result.output[2], 0.3, 1e-3);
    EXPECT_EQ(result.output[3], result.output[2]);
    EXPECT_EQ(result.output[4], -kInf);
    EXPECT_TRUE(std::isnan(result.output[5]));
    EXPECT_EQ(result.input_gradients[0], (Doubles{1, 3, 0, 0, 3, 7}));
  }
}

// A NaN must reach the loss, where it is noticed, and an infinity must not become one, nor an
// infinite gradient where the slope is 0.
TEST(Relu, PassesNaNOnAndMakesNone) {
  for (const DType compute : kRealTypes) {
    LayerCase layer{"relu {}", {Real({3}, {std::nan(""), -kInf, kInf})}};
    layer.output_gradient = {std::nan(""), kInf, -kInf};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_TRUE(std::isnan(result.input_gradients[0][0]));
    EXPECT_EQ(result.input_gradients[0][1], 0);
    EXPECT_EQ(result.input_gradients[0][2], -kInf);
    EXPECT_TRUE(std::isnan(result.output[0]));
    EXPECT_EQ(result.output[1], 0);
    EXPECT_FALSE(std::signbit(result.output[1]));
    EXPECT_EQ(result.output[2], kInf);
  }
}

TEST(Relu, Contract) {
  const ContractOptions options{.rounds_once = true};
  CheckContract({"relu {}", {Distinct({5, 7}, 1)}}, options);
  CheckContract({"relu { negative_slope: 0.1 }", {Distinct({3, 2, 5, 1}, 2)}}, options);
  CheckContract({"relu { max: 0.75 }", {Distinct({5, 7}, 1)}}, options);
  CheckContract({"relu {}", {Distinct({3}, 3)}}, options);
  CheckContract({"relu {}", {Along(1, Distinct({2, 3, 4}, 4))}}, options);
}

TEST(Relu, MayWorkInPlace) {
  const RunResult result = Ran({"relu {}", {Distinct({2, 3}, 1)}});
  ASSERT_EQ(result.spec.aliases.size(), 1u);
  EXPECT_FALSE(result.spec.aliases[0].must);
  EXPECT_EQ(result.spec.states[0].backward, kNone);
}

TEST(Relu, Errors) {
  EXPECT_EQ(Refusal({"relu { negative_slope: -1 }", {Distinct({2, 3}, 1)}}),
            "negative_slope: expected 0 or more, got -1");
  EXPECT_EQ(Refusal({"relu { negative_slope: nan }", {Distinct({2, 3}, 1)}}),
            "negative_slope: expected 0 or more, got nan");
  for (const char* max : {"0", "-1", "nan", "inf"}) {
    EXPECT_EQ(Refusal({absl::StrCat("relu { max: ", max, " }"), {Distinct({2, 3}, 1)}}),
              absl::StrCat("max: expected more than 0, got ", max));
  }
  EXPECT_EQ(Refusal({"relu {}", {Distinct({2}, 1), Distinct({2}, 1)}}),
            "expects 1 input (x), got 2");
  EXPECT_EQ(Refusal({"relu {}", {Labels({1, 2})}}), "expects x of type F64, got I32");
  EXPECT_EQ(Refusal({"relu {}", {Distinct({}, 1)}}), "expects inputs [N, ...], got []");
  EXPECT_EQ(Refusal({"relu {}", {Real({2, 0}, {})}}),
            "expects samples of one element or more, got [2, 0]");
}

}  // namespace
}  // namespace gyre
