// Mistakes in a whole net's text: one error each, which says where, in which layer, what was
// expected and what was found.  Those of a graph or a block alone: tests/schema.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/training/model/model.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

// The first line; those of a case follow.
constexpr char kInputs[] =
    "input { name: 'image' dims: [4, 4, 6] } input { name: 'x' dims: [6, 4] } "
    "input { name: 'tokens' dims: 6 type: LABEL } input { name: 'label' type: LABEL } "
    "input { name: 'weight' }\n";

struct BadNet {
  const char *text, *error;
};

std::string ErrorOf(const std::string& text, int64_t accumulate = 1) {
  const auto net = ParseNetText(kInputs + text, "n");
  if (!net.ok()) return std::string(net.status().message());
  const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  const auto plan = PlanModel(*net, {.shape = {.global = 4, .accumulate = accumulate},
                                     .test_batch = 3,
                                     .test_samples = 4,
                                     .primitives = &primitives});
  return std::string(plan.status().message());
}

void ExpectErrors(std::initializer_list<BadNet> nets) {
  for (const BadNet& net : nets) EXPECT_EQ(ErrorOf(net.text), net.error) << net.text;
}

TEST(BadNet, Blocks) {
  ExpectErrors({
      {"block { name: 'b' layer { name: 'a' relu {} } }\n"
       "layer { name: 'u' use { block: 'b' repeat: 9223372036854775807 } }",
       "n:3:36: layer \"u\": repeat must be >= 1 and <= 100000, got 9223372036854775807"},
      {"block { name: 'b' argument { name: 'k' sets: 'a.conv2d.kernel' }\n"
       "layer { name: 'a' conv2d { filters: 2 } } }\n"
       "layer { name: 'u' input: 'image' use { block: 'b' set: 'k=5' } }",
       "n:3:1, used at n:4:1: layer \"u-a\": kernel 5 exceeds padded input 4 (height)"},
  });
}

TEST(BadNet, NamesOfInputs) {
  ExpectErrors({
      {"layer { name: 'parts' input: 'x' split { parts: 2 } }\n"
       "layer { name: 'a' input: 'parts:7' relu {} }",
       "n:3:19: layer \"a\": input \"parts:7\": \"parts\" has 2 outputs, numbered from 0"},
      {"layer { name: 'a' input: ':1' relu {} }",
       "n:2:19: layer \"a\": unknown input \"\"; choose from image, x, tokens, label, weight, a"},
  });
}

// With the layer's place and name; tests/layers has what each layer refuses.
TEST(BadNet, WhatLayersTake) {
  ExpectErrors({
      {"layer { name: 'a' input: ['x', 'x'] concat { axis: 3 } }",
       "n:2:1: layer \"a\": axis: expected -3 to 2 for inputs [4, 6, 4], got 3"},
      {"layer { name: 'a' input: 'x' transpose { axes: [1, 0, 2] } }\n"
       "layer { name: 'b' input: ['a', 'x'] add {} }",
       "n:3:1: layer \"b\": expects inputs of one shape, got [6, 4, 4] and [4, 6, 4]"},
      // Fused, it takes what the ReLU takes; that is not what the text says.
      {"layer { name: 'd' input: 'x' dense { outputs: 3 } }\nlayer { name: 'r' relu {} }\n"
       "layer { name: 'a' pool2d { kernel: 2 } }",
       "n:4:1: layer \"a\": expects images [N, H, W, C], got [4, 6, 3]; it names no input, and so "
       "takes \"r\""},
  });
}

TEST(BadNet, LossesOfPhases) {
  ExpectErrors({
      {"layer { name: 'fc' input: 'x' dense { outputs: 3 } }\n"
       "layer { name: 'a' phase: TEST input: ['fc', 'tokens'] softmax_cross_entropy {} }",
       "n: the net has no loss to train with; add a layer such as softmax_cross_entropy"},
  });
}

// Gradients of a step's batches are weighed by one count.
TEST(BadNet, LossesOfStepsOfSeveralBatchesCountTheSameTargets) {
  const auto error = [](const std::string& other, int64_t accumulate) {
    const std::string losses =
        "layer { name: 'flat' input: 'x' flatten {} }\n"
        "layer { name: 'a' input: 'flat' dense { outputs: 4 } }\n"
        "layer { name: 'b' input: 'flat' dense { outputs: 4 } }\n"
        "layer { name: 'loss' input: ['a', 'label'] softmax_cross_entropy { ignore_label: 1 } }\n";
    return ErrorOf(absl::StrCat(losses, "layer { name: 'other' ", other, " }"), accumulate);
  };
  const std::string same =
      "input: ['b', 'label'] softmax_cross_entropy { ignore_label: 1 loss_weight: 0.5 }";
  EXPECT_EQ(error(same, 2), "");
  for (const std::string other :
       {"input: ['b', 'label'] softmax_cross_entropy { ignore_label: 2 }",
        "input: ['b', 'label'] softmax_cross_entropy {}", "input: ['a', 'b'] mean_squared_error {}",
        "input: ['a', 'b'] time_to_event { horizon: 1 offset: 1 }"}) {
    EXPECT_EQ(error(other, 1), "");
    EXPECT_EQ(error(other, 2),
              "n:6:1: layer \"other\": with accumulate 2 all losses must be means over the same "
              "targets, but that of layer \"loss\" leaves out some that this one counts, or counts "
              "others; set accumulate to 1, or give both one target, ignore_label and weight");
  }
  const std::string weighed = "input: ['b', 'label', 'weight'] softmax_cross_entropy ";
  EXPECT_NE(error(weighed + "{ ignore_label: 1 }", 2), "");
  EXPECT_EQ(error("input: ['b', 'label', 'b'] softmax_cross_entropy {}", 1),
            "n:6:1: layer \"other\": expects weights [4] of type F32, one for each sample, got "
            "[4, 4] of type F32");
  // One that is only looked at has no gradient to be weighed.
  EXPECT_EQ(error("input: ['b', 'label'] softmax_cross_entropy { loss_weight: 0 }", 2), "");
}

TEST(BadNet, Parameters) {
  const std::string fc = "layer { name: 'fc' input: 'x' dense { outputs: 4 } }\n";
  const std::string loss =
      "layer { name: 'loss' input: ['fc', 'tokens'] softmax_cross_entropy {} }\n";
  const struct {
    std::string text, error;
  } cases[] = {
      {"layer { name: 'fc' input: 'x' dense { outputs: 4 use_bias: false "
       "weight { learning_rate_multiplier: 0 } } }\n" +
           loss,
       "n: the net has no parameter to train: add a layer such as dense, or give one a "
       "learning_rate_multiplier above 0"},
      {fc + loss + "layer { name: 'lost' input: 'fc' dense { outputs: 4 } }",
       "n:4:1: layer \"lost\": has parameters that no loss depends on; feed it to a loss or remove "
       "it"},
      {fc + loss + "layer { name: 'extra' input: 'fc' phase: TEST dense { outputs: 4 } }",
       "n:4:1: layer \"extra\": has the parameter \"weight\", which the training net lacks; remove "
       "`phase: TEST` or the layer"},
  };
  for (const auto& c : cases) EXPECT_EQ(ErrorOf(c.text), c.error);
}

TEST(BadNet, SharedParameters) {
  const struct {
    const char *second, *parameter, *differ;
  } cases[] = {
      {"dense { outputs: 5 weight { name: 'w' } }", "weight",
       "shape is [5, 4] and the other's [4, 4]"},
      {"dense { outputs: 4 weight { name: 'w' learning_rate_multiplier: 2 } }", "weight",
       "learning_rate_multiplier is 2 and the other's 1"},
      {"dense { outputs: 4 weight { name: 'w' initializer { msra {} } } }", "weight",
       "initializer is msra {} and the other's xavier {}"},
      {"dense { outputs: 4 weight { name: 'w' initializer { gaussian { std: 1 } } } }", "weight",
       "initializer is gaussian { mean: 0 std: 1 } and the other's xavier {}"},
      {"precision: BF16 dense { outputs: 4 weight { name: 'w' } }", "weight",
       "precision is BF16 and the other's F32"},
      {"layer_norm { scale { name: 'w' } }", "scale", "shape is [4] and the other's [4, 4]"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ErrorOf(absl::StrCat(
                  "layer { name: 'a' input: 'x' dense { outputs: 4 weight { name: 'w' } } }\n"
                  "layer { name: 'b' ",
                  c.second, " }")),
              absl::StrCat("n:3:1: layer \"b\": ", c.parameter,
                           " is \"w\", as is weight of layer \"a\"; "
                           "parameters of one name are one, but its ",
                           c.differ));
  }
  ExpectErrors({
      {"layer { name: 'a' input: 'x' dense { outputs: 4 weight { name: 'a/w' } } }",
       "n:2:1: layer \"a\": weight.name: expected ASCII letters, digits, \"_\" and \"-\", got "
       "\"a/w\""},
      {"layer { name: 'a' input: 'x' batch_norm { scale { name: 'w' } bias { name: 'w' } } }",
       "n:2:1: layer \"a\": scale and bias are both \"w\"; a layer's own parameters cannot be one"},
      // What one of two layers leaves alone the other moves.
      {"layer { name: 'table' input: 'tokens'\n"
       "        embedding { vocabulary: 6 width: 5 lazy: true weight { name: 'w' } } }\n"
       "layer { name: 'scores' dense { outputs: 6 weight { name: 'w' } } }\n"
       "layer { name: 'loss' input: ['scores', 'tokens'] softmax_cross_entropy {} }",
       "n:2:1: layer \"table\": lazy: expected a table of its own, got \"w\", which layer "
       "\"scores\" uses, too; leave lazy out"},
      // Nets of both phases and of every batch have one.
      {"layer { name: 'a' phase: TRAIN input: 'x' dense { outputs: 4 weight { name: 'w' } } }\n"
       "layer { name: 'b' phase: TEST input: 'x' dense { outputs: 5 weight { name: 'w' } } }\n"
       "layer { name: 'c' phase: TRAIN input: ['a', 'x'] mean_squared_error {} }",
       "n:3:1: layer \"b\": weight is [4, 4] F32 in the training net, but would be [5, 4] F32 "
       "here; nets of other batch sizes share it, so it cannot depend on the batch"},
      {"input { name: 'row' dims: 60 }\n"
       "layer { name: 'a' input: 'row' dense { outputs: 12 use_bias: false weight { name: 'w' } } "
       "}\n"
       "layer { name: 'out' dense { outputs: 4 } }\n"
       "layer { name: 'loss' input: ['out', 'label'] softmax_cross_entropy {} }\n"
       "layer { name: 'short' input: 'row' slice { end: 12 } phase: TEST }\n"
       "layer { name: 'b' phase: TEST dense { outputs: 60 use_bias: false weight { name: 'w' } } }",
       "n:7:1: layer \"b\": weight is \"w\" of the training net, but has the shape [12, 60] and "
       "storage \"\" there, [60, 12] and \"\" here; give it the same in both phases"},
  });
}

}  // namespace
}  // namespace gyre
