#include <gtest/gtest.h>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

TEST(Flatten, IsAView) {
  LayerCase layer{"flatten {}", {Real({2, 1, 3, 1}, {1, 2, 3, 4, 5, 6})}};
  layer.output_gradient = {6, 5, 4, 3, 2, 1};
  const auto result = RunLayer(layer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output_shape, (Shape{2, 3}));
  EXPECT_EQ(result->output, layer.inputs[0].values);
  EXPECT_EQ(result->input_gradients[0], layer.output_gradient);
  ASSERT_EQ(result->spec.aliases.size(), 1u);
  EXPECT_TRUE(result->spec.aliases[0].must);
  EXPECT_EQ(result->spec.aliases[0].input, 0);
  EXPECT_EQ(result->spec.aliases[0].output, 1);
}

TEST(Flatten, OneElementASample) {
  const auto result = RunLayer({"flatten {}", {Distinct({3}, 1)}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output_shape, (Shape{3, 1}));
}

TEST(Flatten, Contract) {
  CheckContract({"flatten {}", {Distinct({3, 2, 1, 5}, 1)}}, {.rounds_once = true});
}

TEST(Flatten, Errors) {
  EXPECT_EQ(Refusal({"flatten {}", {}}), "expects 1 input (x), got 0");
  EXPECT_EQ(Refusal({"flatten {}", {Labels({1})}}), "expects x of type F64, got I32");
  EXPECT_EQ(Refusal({"flatten {}", {Along(1, Distinct({2, 3, 1}, 1))}}),
            "expects samples along axis 0, but those of input 0, [2, 3, 1], are along axis 1; "
            "transpose it");
  EXPECT_EQ(Refusal({"flatten {}", {Distinct({}, 1)}}), "expects inputs [N, ...], got []");
  EXPECT_EQ(Refusal({"flatten {}", {Real({2, 3, 0}, {})}}),
            "expects samples of one element or more, got [2, 3, 0]");
}

}  // namespace
}  // namespace gyre
