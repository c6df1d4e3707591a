// Blocks: what stands in a net after they are put in place, where its mistakes are said to be, and
// what is no use of a block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/schema/graph.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

constexpr char kHead[] = "input { name: 'image' dims: 4 } input { name: 'label' type: LABEL }\n";

// "a<image b-c<a,label": each layer with its inputs in the graph's order, or the error.
std::string Layers(const std::string& text, std::vector<std::string> overrides = {},
                   LayerConfig::Phase phase = LayerConfig::TRAIN) {
  const auto net = ParseNetText(kHead + text, "n", overrides);
  if (!net.ok()) return std::string(net.status().message());
  const auto graph = BuildGraph(*net, phase);
  if (!graph.ok()) return std::string(graph.status().message());
  std::vector<std::string> layers;
  for (const Node& node : graph->nodes) {
    std::vector<std::string> inputs;
    for (const Source& input : node.inputs) {
      inputs.push_back(input.is_net_input ? net->message->input(input.index).name()
                                          : graph->nodes[input.index].config->name());
      if (input.output > 0) absl::StrAppend(&inputs.back(), ":", input.output);
    }
    layers.push_back(absl::StrCat(node.config->name(), "<", absl::StrJoin(inputs, ",")));
  }
  return absl::StrJoin(layers, " ");
}

std::string Text(const std::string& text, std::vector<std::string> overrides = {}) {
  const auto net = ParseNetText(kHead + text, "n", overrides);
  return net.ok() ? net->message->ShortDebugString() : std::string(net.status().message());
}

constexpr char kPair[] =
    "block { name: 'pair' argument { name: 'width' sets: 'fc.dense.outputs' }\n"
    "        argument { name: 'rate' sets: 'drop.dropout.rate' default: '0.5' }\n"
    "        layer { name: 'fc' dense {} } layer { name: 'drop' phase: TRAIN dropout {} } }\n";

TEST(Blocks, IsTheNetThatOneWouldHaveWritten) {
  EXPECT_EQ(
      Text(absl::StrCat(kPair,
                        "layer { name: 'a' use { block: 'pair' set: ['width=3', 'rate=0.25'] } }"
                        "layer { name: 'b' input: 'a' use { block: 'pair' set: 'width=2' } }")),
      "input { name: \"image\" dims: 4 } input { name: \"label\" type: LABEL } "
      "layer { name: \"a-fc\" dense { outputs: 3 } } "
      "layer { name: \"a-drop\" phase: TRAIN dropout { rate: 0.25 } } "
      "layer { name: \"b-fc\" input: \"a-drop\" dense { outputs: 2 } } "
      "layer { name: \"b-drop\" phase: TRAIN dropout { rate: 0.5 } }");
}

TEST(Blocks, Inputs) {
  constexpr char kResidual[] =
      "block { name: 'r' input: 'x' layer { name: 'y' relu {} } layer { name: 'z' input: ['y', 'x']"
      " softmax_cross_entropy {} } }";
  const struct {
    std::string text, layers;
  } cases[] = {
      // The layer above, or the net's first input.
      {"layer { name: 'a' use { block: 'r' } }", "a-y<image a-z<a-y,image"},
      {"layer { name: 'q' relu {} } layer { name: 'a' use { block: 'r' } } layer { name: 'e' relu "
       "{} }",
       "q<image a-y<q a-z<a-y,q e<a-z"},
      {"layer { name: 'a' input: 'label' use { block: 'r' repeat: 3 } } layer { name: 'b' input: "
       "'a' relu {} }",
       "a-1-y<label a-1-z<a-1-y,label a-2-y<a-1-z a-2-z<a-2-y,a-1-z a-3-y<a-2-z a-3-z<a-3-y,a-2-z "
       "b<a-3-z"},
      // An output by its number.
      {"block { name: 's' input: 'x' layer { name: 'p' input: 'x' split {} } layer { name: 'q' "
       "input: 'p:1' relu {} } } layer { name: 'a' use { block: 's' } } layer { name: 'b' input: "
       "'a' relu {} }",
       "a-p<image a-q<a-p:1 b<a-q"},
      // A user below another; a name of the net's; an inner name that hides it.
      {"layer { name: 'b' input: 'a' relu {} } layer { name: 'a' input: 'image' use { block: 'r' } "
       "}",
       "a-y<image a-z<a-y,image b<a-z"},
      {"block { name: 'n' layer { name: 'l' input: ['image', 'label'] accuracy {} } }"
       "layer { name: 'a' use { block: 'n' } }",
       "a-l<image,label"},
      {"block { name: 'n' layer { name: 'image' relu {} } layer { name: 'b' input: 'image' relu {} "
       "} }layer { name: 'a' input: 'label' use { block: 'n' } }",
       "a-image<label a-b<a-image"},
      // Blocks in blocks.
      {"block { name: 'o' input: ['p', 'q'] layer { name: 'i' input: 'q' use { block: 'r' repeat: "
       "2 } } layer { name: 's' input: ['i', 'p'] accuracy {} } }layer { name: 'a' input: "
       "['label', 'image'] use { block: 'o' } }",
       "a-i-1-y<image a-i-1-z<a-i-1-y,image a-i-2-y<a-i-1-z a-i-2-z<a-i-2-y,a-i-1-z "
       "a-s<a-i-2-z,label"},
      {"block { name: 'o' layer { name: 'i' use { block: 'r' } } }"
       "layer { name: 'a' use { block: 'o' } } layer { name: 'b' input: 'a' relu {} }",
       "a-i-y<image a-i-z<a-i-y,image b<a-i-z"},
  };
  for (const auto& c : cases) EXPECT_EQ(Layers(kResidual + c.text), c.layers) << c.text;
}

TEST(Blocks, Phases) {
  const std::string text =
      absl::StrCat(kPair,
                   "layer { name: 'a' phase: TEST use { block: 'pair' set: 'width=3' } }"
                   "layer { name: 'b' relu {} }");
  EXPECT_EQ(Layers(text, {}, LayerConfig::TEST), "a-fc<image b<a-fc");
  EXPECT_EQ(Layers(text, {}, LayerConfig::TRAIN), "b<image");
}

TEST(Blocks, AnArgumentReachesTheBlocksInABlock) {
  EXPECT_EQ(Text(absl::StrCat(
                kPair,
                "block { name: 'o' argument { name: 'w' sets: ['i.width', 'fc.dense.outputs'] }"
                "        layer { name: 'i' use { block: 'pair' } } layer { name: 'fc' dense {} } }"
                "layer { name: 'a' use { block: 'o' set: 'w=7' } }")),
            "input { name: \"image\" dims: 4 } input { name: \"label\" type: LABEL } "
            "layer { name: \"a-i-fc\" dense { outputs: 7 } } "
            "layer { name: \"a-i-drop\" phase: TRAIN dropout { rate: 0.5 } } "
            "layer { name: \"a-fc\" dense { outputs: 7 } }");
}

TEST(Blocks, Overrides) {
  const std::string text =
      absl::StrCat(kPair, "layer { name: 'a' use { block: 'pair' set: 'width=3' } }");
  const std::string fc = "layer { name: \"a-fc\" dense { outputs: ";
  EXPECT_THAT(Text(text, {"layer.a-fc.dense.outputs=9"}), testing::HasSubstr(fc + "9 } }"));
  EXPECT_THAT(Text(text, {"layer.a.use.set=width=8"}), testing::HasSubstr(fc + "8 } }"));
  EXPECT_THAT(Text(text, {"layer.0.use.repeat=2"}),
              testing::HasSubstr(
                  "drop\" phase: TRAIN dropout { rate: 0.5 } } layer { name: \"a-2-fc\" dense { "));
  EXPECT_THAT(Text(text, {"block.pair.layer.fc.dense.use_bias=false"}),
              testing::HasSubstr(fc + "3 use_bias: false } }"));
  EXPECT_EQ(Text(text, {"layer.a-fd.dense.outputs=9"}),
            "--set net.layer.a-fd.dense.outputs=9: unknown layer \"a-fd\"; did you mean \"a-fc\"?");
  EXPECT_EQ(
      Text(text, {"layer.a-fc.use.block=pair"}),
      "--set net.layer.a-fc.use.block=pair: layer \"a-fc\": a layer of a block; it cannot use "
      "another");
  EXPECT_EQ(Text(text, {"layer.a-fc.name=a-drop"}),
            "n:4:47, used at n:5:1: layer \"a-drop\": the name is already that of the layer at "
            "--set net.layer.a-fc.name=a-drop");
}

TEST(Blocks, PositionsNameTheLineAndThePlaceThatUsesIt) {
  const auto net = *ParseNetText(
      absl::StrCat(kHead, kPair, "layer { name: 'a'\n use { block: 'pair' set: 'width=3' } }"),
      "n");
  const LayerConfig& fc = net.message->layer(0);
  EXPECT_EQ(net.source->Where(fc), "n:4:9, used at n:5:1");
  EXPECT_EQ(net.source->Where(fc, "phase"), "n:4:9, used at n:5:1");
  EXPECT_EQ(net.source->Where(fc.dense(), "outputs"), "n:6:22");
  EXPECT_EQ(net.source->Where(fc.dense()), "n:4:28, used at n:5:1");
  EXPECT_EQ(net.source->Where(net.message->layer(1).dropout(), "rate"), "n:3:59");
}

TEST(Blocks, Errors) {
  const struct {
    std::string text, error;
  } cases[] = {
      {"block { layer { name: 'a' relu {} } }",
       "n:2:1: block: missing name; write name: \"residual\""},
      {"block { name: 'b' }", "n:2:1: block \"b\": has no layer"},
      {"block { name: 'b' layer { name: 'a' relu {} } }\nblock { name: 'b' }",
       "n:3:9: block \"b\": the name is already that of a block above"},
      {"block { name: 'b' argument { name: 'x' } layer { name: 'a' relu {} } }",
       "n:2:19: block \"b\": an argument needs a name and a field: argument { name: \"filters\" "
       "sets: \"conv1.conv2d.filters\" }"},
      {"block { name: 'b' argument { name: 'x' sets: 'ab.relu' } layer { name: 'a' relu {} } }",
       "n:2:40: block \"b\": unknown layer \"ab\"; did you mean \"a\"?"},
      {"layer { name: 'a' use { block: 'b' } }",
       "n:2:25: layer \"a\": the net has no block; write block { name: \"b\" layer { ... } }"},
      {absl::StrCat(kPair, "layer { name: 'a' use { block: 'pain' } }"),
       "n:5:25: layer \"a\": unknown block \"pain\"; did you mean \"pair\"?"},
      {absl::StrCat(kPair, "layer { use { block: 'pair' } }"),
       "n:5:1: layer: missing name; write name: \"stage1\""},
      {absl::StrCat(kPair, "layer { name: 'a' relu {} use { block: 'pair' } }"),
       "n:5:27: layer \"a\": uses a block and has a type; write one of them"},
      {absl::StrCat(kPair, "layer { name: 'a' use { block: 'pair' } }"),
       "n:5:19: layer \"a\": block \"pair\" needs width; write set: \"width=VALUE\""},
      {absl::StrCat(kPair, "layer { name: 'a' use { block: 'pair' set: 'with=3' } }"),
       "n:5:39: layer \"a\": unknown argument \"with\"; did you mean \"width\"?"},
      {absl::StrCat(kPair, "layer { name: 'a' use { block: 'pair' set: 'width' } }"),
       "n:5:39: layer \"a\": expected ARGUMENT=VALUE, got \"width\""},
      {absl::StrCat(kPair,
                    "layer { name: 'a' use { block: 'pair' set: 'width=1' set: 'width=2' } }"),
       "n:5:54: layer \"a\": argument \"width\" is set twice"},
      {absl::StrCat(kPair, "layer { name: 'a' use { block: 'pair' set: 'width=x' } }"),
       "n:5:39: layer \"a\": argument \"width\" of block \"pair\", which sets fc.dense.outputs: "
       "expected for outputs a 64-bit integer, got \"x\""},
      {"block { name: 'b' argument { name: 'x' sets: 'a.rely.z' default: '1' }\n"
       "layer { name: 'a' relu {} } } layer { name: 'u' use { block: 'b' } }",
       "n:2:57: layer \"u\": argument \"x\" of block \"b\", which sets a.rely.z: unknown layer "
       "type \"rely\"; did you mean \"relu\"?"},
      {absl::StrCat(kPair, "layer { name: 'a' use { block: 'pair' set: 'width=1' repeat: 0 } }"),
       "n:5:54: layer \"a\": repeat must be >= 1 and <= 100000, got 0"},
      {absl::StrCat(kPair,
                    "layer { name: 'a' use { block: 'pair' set: 'width=1' repeat: 90000 } }"),
       "n:5:1: layer \"a\": the net has more than 100000 layers"},
      {"block { name: 'b' layer { name: 'a' use { block: 'c' } } }\n"
       "block { name: 'c' layer { name: 'a' use { block: 'b' } } }\n"
       "layer { name: 'u' use { block: 'b' } }",
       "n:3:43, used at n:2:19, used at n:4:1: layer \"u-a-a\": block \"b\" uses itself: "
       "b -> c -> b"},
      {absl::StrCat(kPair,
                    "layer { name: 'a' input: ['image', 'label'] use { block: 'pair' set: "
                    "'width=1' } }"),
       "n:5:19: layer \"a\": block \"pair\" takes 0 inputs, got 2"},
      {"block { name: 'b' input: ['x', 'y'] layer { name: 'a' input: ['x', 'y'] accuracy {} } }\n"
       "layer { name: 'u' use { block: 'b' } }",
       "n:3:1: layer \"u\": block \"b\" takes 2 inputs (x, y), got 0"},
      {"block { name: 'b' input: 'x' layer { name: 'a' input: 'x' relu {} } }\n"
       "layer { name: 'd' phase: TRAIN dropout {} } layer { name: 'u' use { block: 'b' } }",
       "n:3:45: layer \"u\": the layer above, \"d\", is of phase TRAIN only; say what block \"b\" "
       "takes as input"},
      {absl::StrCat(kPair,
                    "layer { name: 'a' use { block: 'pair' set: 'width=1' } }\n"
                    "layer { name: 'a' relu {} }"),
       "n:6:9: layer \"a\": the name is already that of a layer that uses a block"},
      {absl::StrCat(kPair,
                    "layer { name: 'a' use { block: 'pair' set: 'width=1' } }\n"
                    "layer { name: 'a' use { block: 'pair' set: 'width=1' } }"),
       "n:6:9: layer \"a\": the name is already that of another layer that uses a block"},
      {"block { name: 'b' layer { name: 'a' input: 'imag' relu {} } }\n"
       "layer { name: 'u' use { block: 'b' } }",
       "n:2:37, used at n:3:1: layer \"u-a\": unknown input \"imag\"; did you mean \"image\"?"},
      {"block { name: 'b' argument { name: 'w' sets: 'a.dense.outputs' }\n"
       "layer { name: 'a' relu {} } } layer { name: 'u' use { block: 'b' set: 'w=10' } }",
       "n:3:66: layer \"u\": argument \"w\" of block \"b\", which sets a.dense.outputs: layer "
       "\"a\" is of type relu, not dense"},
      {"block { name: 'b' input: ['x', 'x'] layer { name: 'a' input: 'x' relu {} } }",
       "n:2:19: block \"b\": input \"x\": the name is already that of another input or of a layer"},
      {"block { name: 'b' input: 'x' input: '' layer { name: 'a' input: 'x' relu {} } }",
       "n:2:30: block \"b\": an input without a name; write input: \"x\""},
      {"block { name: 'b' input: 'a' layer { name: 'a' input: 'a' relu {} } }",
       "n:2:19: block \"b\": input \"a\": the name is already that of another input or of a layer"},
      {"block { name: 'b' layer { relu {} } }",
       "n:2:19: block \"b\": a layer without a name; write name: \"conv1\""},
      {"block { name: 'b' argument { name: 'w' sets: 'a.dense.outputs' }\n"
       "argument { name: 'w' sets: 'a.dense.outputs' } layer { name: 'a' dense {} } }",
       "n:3:12: block \"b\": two arguments are called \"w\""},
      {"block { name: 'b' argument { name: 'w' sets: 'a.phase' } layer { name: 'a' relu {} } }",
       "n:2:40: block \"b\": an argument sets a field of a layer's type, such as a.conv2d.filters, "
       "got \"a.phase\""},
      {"block { name: 'b' layer { name: 'a' input: 'image' relu {} } }\n"
       "layer { name: 'u' input: 'label' use { block: 'b' } }",
       "n:3:34: layer \"u\": block \"b\" has no input that this could feed: its first layer says "
       "its own; write input: \"x\" in the block, and input: \"x\" in that layer"},
      {"block { name: 'b' layer { name: 'a' input: 'image' relu {} } }\n"
       "layer { name: 'u' use { block: 'b' repeat: 2 } }",
       "n:3:19: layer \"u\": block \"b\" has no input that a chain could feed: its first layer "
       "says its own; write input: \"x\" in the block, and input: \"x\" in that layer"},
      {"block { name: 'b' layer { name: 'd' phase: TRAIN dropout {} } layer { name: 'a' relu {} } "
       "}\n"
       "layer { name: 'u' input: 'label' use { block: 'b' } }",
       "n:2:63, used at n:3:1: layer \"u-a\": in one of the phases no layer of block \"b\" is "
       "above it; say what it takes as input"},
      {"block { name: 'b' layer { name: 'a' relu {} } } layer { name: 'image' use { block: 'b' } }",
       "n:1:9: input \"image\": the name is already that of a layer that uses a block"},
      {"block { name: 'p' layer { name: 'r' phase: TEST relu {} } layer { name: 's' relu {} } }\n"
       "block { name: 'q' layer { name: 'u' use { block: 'p' repeat: 1000 } } }\n"
       "layer { name: 't' use { block: 'q' repeat: 1000 } }",
       "n:3:19, used at n:4:1: layer \"t-50-u\": the net has more than 100000 layers"},
      {absl::StrCat("block { name: 'b' layer { name: 'a' relu {} } }\nlayer { name: '",
                    std::string(101, 'x'), "' use { block: 'b' } }"),
       absl::StrCat("n:3:9: layer \"", std::string(101, 'x'),
                    "\": a name has at most 100 characters")},
  };
  for (const auto& c : cases) EXPECT_EQ(Layers(c.text), c.error) << c.text;
  EXPECT_THAT(
      Layers("block { name: 'b' layer { name: 'a' } }\nlayer { name: 'u' use { block: 'b' } }"),
      testing::StartsWith("n:2:19, used at n:3:1: layer \"u-a\": missing type; write one of "));
}

}  // namespace
}  // namespace gyre
