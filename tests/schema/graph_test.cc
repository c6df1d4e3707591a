// The order of layers, where each takes its inputs, and what makes a net no graph.
#include "models/schema/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

namespace gyre {
namespace {

Parsed<NetConfig> Net(const std::string& text) {
  auto net = ParseNetText(text, "n");
  EXPECT_TRUE(net.ok()) << net.status();
  return *std::move(net);
}

// "a<image,label b<a": each layer with its inputs, in the graph's order; or the error.
std::string Summary(const std::string& text, LayerConfig::Phase phase = LayerConfig::TRAIN) {
  const Parsed<NetConfig> net = Net(text);
  const auto graph = BuildGraph(net, phase);
  if (!graph.ok()) {
    EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(graph.status().message());
  }
  std::string summary;
  for (const Node& node : graph->nodes) {
    summary += (summary.empty() ? "" : " ") + node.config->name();
    const char* separator = "<";
    for (const Source& input : node.inputs) {
      summary += separator + (input.is_net_input ? net.message->input(input.index).name()
                                                 : graph->nodes[input.index].config->name());
      separator = ",";
    }
  }
  return summary;
}

constexpr char kInputs[] = "input { name: 'image' } input { name: 'label' }\n";

TEST(Graph, EachLayerFollowsTheOneAbove) {
  EXPECT_EQ(Summary(std::string(kInputs) +
                    "layer { name: 'a' relu {} } layer { name: 'b' relu {} }"
                    "layer { name: 'loss' input: ['b', 'label'] softmax_cross_entropy {} }"
                    "layer { name: 'c' relu {} }"),
            "a<image b<a loss<b,label c<loss");
}

TEST(Graph, OrderIsThatOfTheFileWhereEdgesAllow) {
  EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'd' input: 'a' relu {} }"
                                           "layer { name: 'c' input: 'label' relu {} }"
                                           "layer { name: 'b' input: 'image' relu {} }"
                                           "layer { name: 'a' input: 'b' relu {} }"),
            "c<label b<image a<b d<a");
}

TEST(Graph, TheSameInputTwice) {
  EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'b' input: ['a', 'a'] relu {} }"
                                           "layer { name: 'a' input: 'image' relu {} }"),
            "a<image b<a,a");
}

TEST(Graph, OutputsByNumber) {
  const Parsed<NetConfig> net = Net(std::string(kInputs) +
                                    "layer { name: 'a' input: 'image' split {} }"
                                    "layer { name: 'b' input: ['a:2', 'a', 'a:0'] add {} }");
  const auto graph = BuildGraph(net, LayerConfig::TRAIN);
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<int> outputs;
  for (const Source& source : graph->nodes[1].inputs) outputs.push_back(source.output);
  EXPECT_EQ(outputs, (std::vector<int>{2, 0, 0}));
  for (const char* bad : {"a:", "a:x", "a:-1", "a:1:0", "a:10000"}) {
    EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'a' input: 'image' split {} }\n" +
                      "layer { name: 'b' input: '" + bad + "' relu {} }"),
              std::string("n:3:19: layer \"b\": input \"") + bad +
                  "\": expected NAME, or NAME:K with K the number of one of its outputs");
  }
  EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'b' input: 'image:1' relu {} }"),
            "n:2:19: layer \"b\": input \"image:1\": \"image\" is an input of the net, not a layer "
            "with several outputs");
}

TEST(Graph, Phases) {
  const std::string text = std::string(kInputs) +
                           "layer { name: 'a' phase: TEST relu {} }"
                           "layer { name: 'b' relu {} }"
                           "layer { name: 'drop' phase: TRAIN dropout {} }"
                           "layer { name: 'c' relu {} }"
                           "layer { name: 'd' input: 'b' phase: TEST relu {} }";
  EXPECT_EQ(Summary(text, LayerConfig::TRAIN), "b<image drop<b c<drop");
  EXPECT_EQ(Summary(text, LayerConfig::TEST), "a<image b<a c<b d<b");
}

TEST(Graph, APhaseWithoutLayersIsEmpty) {
  EXPECT_EQ(Summary("layer { name: 'a' phase: TRAIN relu {} }", LayerConfig::TEST), "");
}

TEST(Graph, InputOfTheOtherPhase) {
  const std::string text = std::string(kInputs) +
                           "layer { name: 'drop' phase: TRAIN dropout {} }\n"
                           "layer { name: 'c' input: 'drop' relu {} }";
  EXPECT_EQ(Summary(text, LayerConfig::TRAIN), "drop<image c<drop");
  EXPECT_EQ(Summary(text, LayerConfig::TEST),
            "n:3:19: layer \"c\": input \"drop\" is a layer of phase TRAIN only and does not exist "
            "in phase TEST");
}

TEST(Graph, UnknownInput) {
  EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'conv1' relu {} }\n"
                                           "layer { name: 'b' input: 'conv2' relu {} }"),
            "n:3:19: layer \"b\": unknown input \"conv2\"; did you mean \"conv1\"?");
  EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'conv1'\n input: 'image'\n input: "
                                           "'elsewhere' relu {} }"),
            "n:4:2: layer \"conv1\": unknown input \"elsewhere\"; choose from image, label, conv1");
}

TEST(Graph, NoInputAtAll) {
  EXPECT_EQ(Summary("\n layer { name: 'a' relu {} }"),
            "n:2:2: layer \"a\": nothing to take as input: no layer above it, and the net has no "
            "input; write input { name: \"image\" dims: 28 dims: 28 dims: 1 }");
}

TEST(Graph, Cycles) {
  EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'a' input: ['image', 'a'] relu {} }"),
            "n:2:19: layer \"a\": takes its own output as input");
  EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'a' input: 'b' relu {} }\n"
                                           "layer { name: 'b' input: 'a' relu {} }"),
            "n:2:19: layer \"a\": cycle: \"a\" -> \"b\" -> \"a\"");
  // The layers before and behind a cycle are not of it; the last waits for it, and is first in the
  // file.
  EXPECT_EQ(Summary(std::string(kInputs) + "layer { name: 'behind' input: 'z' relu {} }\n"
                                           "layer { name: 'before' input: 'image' relu {} }\n"
                                           "layer { name: 'x' input: ['before', 'z'] relu {} }\n"
                                           "layer { name: 'y' relu {} }\n"
                                           "layer { name: 'z' relu {} }\n"),
            "n:4:19: layer \"x\": cycle: \"x\" -> \"y\" -> \"z\" -> \"x\"");
}

// Random acyclic nets, their layers shuffled in the file.
TEST(Graph, RandomNetsAreSortedAndStable) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int layers = static_cast<int>(random() % 30);
    std::vector<std::string> texts;
    for (int i = 0; i < layers; ++i) {
      std::string text = "layer { name: 'l" + std::to_string(i) + "' relu {}";
      for (int k = 0; k < 1 + static_cast<int>(random() % 3); ++k) {
        const int from = static_cast<int>(random() % (i + 1)) - 1;
        text += from < 0 ? " input: 'image'" : " input: 'l" + std::to_string(from) + "'";
      }
      texts.push_back(text + " }\n");
    }
    std::shuffle(texts.begin(), texts.end(), random);
    const Parsed<NetConfig> net =
        Net(kInputs + std::accumulate(texts.begin(), texts.end(), std::string()) +
            "layer { name: 'last' input: 'image' relu {} }");
    const auto graph = BuildGraph(net, LayerConfig::TRAIN);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const NetConfig& config = *net.message;
    ASSERT_EQ(graph->nodes.size(), static_cast<size_t>(config.layer_size()));

    // Addresses of layers in one repeated field do not order them, hence positions in the file.
    std::map<const LayerConfig*, int> position;
    for (int i = 0; i < config.layer_size(); ++i) position[&config.layer(i)] = i;
    std::set<std::string> done = {"image", "label"};
    std::vector<int> waiting(config.layer_size());
    std::iota(waiting.begin(), waiting.end(), 0);
    for (const Node& node : graph->nodes) {
      ASSERT_EQ(node.inputs.size(), static_cast<size_t>(node.config->input_size()));
      for (int k = 0; k < node.config->input_size(); ++k) {
        const Source& input = node.inputs[k];
        EXPECT_EQ(node.config->input(k), input.is_net_input
                                             ? config.input(input.index).name()
                                             : graph->nodes[input.index].config->name());
      }
      // It is the first in the file of those whose inputs are all done.
      const auto next = std::find_if(waiting.begin(), waiting.end(), [&](int i) {
        const auto& inputs = config.layer(i).input();
        return std::all_of(inputs.begin(), inputs.end(),
                           [&](const std::string& name) { return done.count(name) > 0; });
      });
      ASSERT_NE(next, waiting.end());
      ASSERT_EQ(position[node.config], *next);
      waiting.erase(next);
      done.insert(node.config->name());
    }
    EXPECT_TRUE(waiting.empty());
  }
}

// Deep, and each layer used by all later ones; in the file's order and in the worst one.
TEST(Graph, AThousandLayers) {
  constexpr int kLayers = 1000;
  for (const bool reversed : {false, true}) {
    std::vector<std::string> texts;
    for (int i = 0; i < kLayers; ++i) {
      std::string text = "layer { name: 'l" + std::to_string(i) + "' relu {} input: ";
      text += i == 0 ? "'image'"
                     : "['l" + std::to_string(i - 1) + "', 'l" + std::to_string(i / 2) + "']";
      if (i == 1) text.replace(text.find("'l0', 'l0'"), 10, "'l0', 'image'");
      texts.push_back(text + " }\n");
    }
    if (reversed) std::reverse(texts.begin(), texts.end());
    const Parsed<NetConfig> net =
        Net(std::accumulate(texts.begin(), texts.end(), std::string(kInputs)));
    const auto graph = BuildGraph(net, LayerConfig::TEST);
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (int i = 0; i < kLayers; ++i) {
      ASSERT_EQ(graph->nodes[i].config->name(), "l" + std::to_string(i));
    }
  }
}

TEST(Graph, ALongCycleIsNamedInOrder) {
  std::string text = kInputs, expected = "n:2:17: layer \"l0\": cycle: ";
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "l" + std::to_string(i);
    text += "layer { name: '" + name + "'" + (i == 0 ? "input: 'l999'" : "") + " relu {} }\n";
    expected += "\"" + name + "\" -> ";
  }
  text.replace(text.find("'l0'input"), 4, "'l0' ");
  EXPECT_EQ(Summary(text), "n:2:20" + expected.substr(6) + "\"l0\"");
}

}  // namespace
}  // namespace gyre
