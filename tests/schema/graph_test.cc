// The order of layers, where each takes its inputs, and what makes a net no graph.
#include "models/schema/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

namespace gyre {
namespace {

Parsed<NetConfig> Net(const std::string& text) { return ParseNetText(text, "n").value(); }

constexpr char kInputs[] = "input { name: 'image' } input { name: 'label' }\n";

// "a<image,label b<a:1": each layer with its inputs, in the graph's order; or the error.
std::string Summary(const std::string& text, LayerConfig::Phase phase) {
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
      if (input.output > 0) summary += ":" + std::to_string(input.output);
      separator = ",";
    }
  }
  return summary;
}

// Layers below the inputs "image" and "label", hence from line 2.
struct Case {
  std::string layers, summary;
  LayerConfig::Phase phase = LayerConfig::TRAIN;
};
void Expect(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(Summary(kInputs + c.layers, c.phase), c.summary);
}

TEST(Graph, OrderAndInputs) {
  Expect({
      // Each follows the one above.
      {"layer { name: 'a' relu {} } layer { name: 'b' relu {} }"
       "layer { name: 'loss' input: ['b', 'label'] softmax_cross_entropy {} }"
       "layer { name: 'c' relu {} }",
       "a<image b<a loss<b,label c<loss"},
      // The order is that of the file where the edges allow it.
      {"layer { name: 'd' input: 'a' relu {} } layer { name: 'c' input: 'label' relu {} }"
       "layer { name: 'b' input: 'image' relu {} } layer { name: 'a' input: 'b' relu {} }",
       "c<label b<image a<b d<a"},
      {"layer { name: 'b' input: ['a', 'a'] relu {} } layer { name: 'a' input: 'image' relu {} }",
       "a<image b<a,a"},
      {"layer { name: 'a' input: 'image' split {} } layer { name: 'b' input: ['a:2', 'a', 'a:0'] "
       "add {} }",
       "a<image b<a:2,a,a"},
  });
}

TEST(Graph, Phases) {
  const std::string text =
      "layer { name: 'a' phase: TEST relu {} } layer { name: 'b' relu {} }"
      "layer { name: 'drop' phase: TRAIN dropout {} } layer { name: 'c' relu {} }"
      "layer { name: 'd' input: 'b' phase: TEST relu {} }";
  const std::string of_the_other =
      "layer { name: 'drop' phase: TRAIN dropout {} }\nlayer { name: 'c' input: 'drop' relu {} }";
  Expect({
      {text, "b<image drop<b c<drop", LayerConfig::TRAIN},
      {text, "a<image b<a c<b d<b", LayerConfig::TEST},
      {"layer { name: 'a' phase: TRAIN relu {} }", "", LayerConfig::TEST},
      {of_the_other, "drop<image c<drop", LayerConfig::TRAIN},
      {of_the_other,
       "n:3:19: layer \"c\": input \"drop\" is a layer of phase TRAIN only and does not exist in "
       "phase TEST",
       LayerConfig::TEST},
  });
}

TEST(Graph, Errors) {
  for (const std::string bad : {"a:", "a:x", "a:-1", "a:1:0", "a:10000"}) {
    Expect({{"layer { name: 'a' input: 'image' split {} }\nlayer { name: 'b' input: '" + bad +
                 "' relu {} }",
             "n:3:19: layer \"b\": input \"" + bad +
                 "\": expected NAME, or NAME:K with K the number of one of its outputs"}});
  }
  Expect({
      {"layer { name: 'b' input: 'image:1' relu {} }",
       "n:2:19: layer \"b\": input \"image:1\": \"image\" is an input of the net, not a layer with "
       "several outputs"},
      {"layer { name: 'conv1' relu {} }\nlayer { name: 'b' input: 'conv2' relu {} }",
       "n:3:19: layer \"b\": unknown input \"conv2\"; did you mean \"conv1\"?"},
      {"layer { name: 'conv1'\n input: 'image'\n input: 'elsewhere' relu {} }",
       "n:4:2: layer \"conv1\": unknown input \"elsewhere\"; choose from image, label, conv1"},
      {"layer { name: 'a' input: ['image', 'a'] relu {} }",
       "n:2:19: layer \"a\": takes its own output as input"},
      {"layer { name: 'a' input: 'b' relu {} }\nlayer { name: 'b' input: 'a' relu {} }",
       "n:2:19: layer \"a\": cycle: \"a\" -> \"b\" -> \"a\""},
      // The layers before and behind a cycle are not of it; the last waits for it, and is first in
      // the file.
      {"layer { name: 'behind' input: 'z' relu {} }\n"
       "layer { name: 'before' input: 'image' relu {} }\n"
       "layer { name: 'x' input: ['before', 'z'] relu {} }\n"
       "layer { name: 'y' relu {} }\n"
       "layer { name: 'z' relu {} }\n",
       "n:4:19: layer \"x\": cycle: \"x\" -> \"y\" -> \"z\" -> \"x\""},
  });
  EXPECT_EQ(Summary("\n layer { name: 'a' relu {} }", LayerConfig::TRAIN),
            "n:2:2: layer \"a\": nothing to take as input: no layer above it, and the net has no "
            "input; write input { name: \"image\" dims: 28 dims: 28 dims: 1 }");
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
    const auto graph = BuildGraph(net, LayerConfig::TRAIN).value();
    const NetConfig& config = *net.message;
    ASSERT_EQ(graph.nodes.size(), static_cast<size_t>(config.layer_size()));

    // Addresses of layers in one repeated field do not order them, hence positions in the file.
    std::map<const LayerConfig*, int> position;
    for (int i = 0; i < config.layer_size(); ++i) position[&config.layer(i)] = i;
    std::set<std::string> done = {"image", "label"};
    std::vector<int> waiting(config.layer_size());
    std::iota(waiting.begin(), waiting.end(), 0);
    for (const Node& node : graph.nodes) {
      ASSERT_EQ(node.inputs.size(), static_cast<size_t>(node.config->input_size()));
      for (int k = 0; k < node.config->input_size(); ++k) {
        const Source& input = node.inputs[k];
        EXPECT_EQ(node.config->input(k), input.is_net_input
                                             ? config.input(input.index).name()
                                             : graph.nodes[input.index].config->name());
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

}  // namespace
}  // namespace gyre
