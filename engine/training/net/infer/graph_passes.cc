#include <algorithm>
#include <utility>

#include "engine/training/net/infer/inference_passes.h"

namespace gyre {
namespace {

// By node: its readers, once for each use.
using Readers = std::vector<std::vector<int>>;

Readers ReadersIn(const NetGraph& graph) {
  Readers readers(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Source& source : graph.nodes[i].inputs) {
      if (!source.is_net_input) readers[source.index].push_back(static_cast<int>(i));
    }
  }
  return readers;
}

bool IsRelu(const Node& node) {
  return node.config->has_relu() && node.config->relu().negative_slope() == 0;
}

void MoveReluPastMaxPool(NetGraph& graph, const Readers& readers) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!IsRelu(graph.nodes[n]) || readers[n].size() != 1) continue;
    Node& pool = graph.nodes[readers[n][0]];
    const bool max = pool.config->has_pool2d() && pool.config->pool2d().kind() == Pool2dConfig::MAX;
    if (max) std::swap(graph.nodes[n].config, pool.config);
  }
}

}  // namespace

void KeepTurn(const RunShape& shape, NetGraph& graph) {
  const std::vector<std::string>& losses = shape.players[shape.turn].losses;
  const int nodes = static_cast<int>(graph.nodes.size());
  std::vector<uint8_t> kept(nodes);
  for (int n = nodes - 1; n >= 0; --n) {  // each follows its inputs
    const Node& node = graph.nodes[n];
    kept[n] = kept[n] || std::ranges::count(losses, node.config->name()) > 0;
    for (const Source& input : node.inputs) {
      if (kept[n] && !input.is_net_input) kept[input.index] = 1;
    }
  }
  std::vector<int> now(nodes, -1);  // by node as it was
  std::vector<Node> left;
  for (int n = 0; n < nodes; ++n) {
    if (!kept[n]) continue;
    now[n] = static_cast<int>(left.size());
    left.push_back(std::move(graph.nodes[n]));
    for (Source& input : left.back().inputs) {
      if (!input.is_net_input) input.index = now[input.index];
    }
  }
  graph.nodes = std::move(left);
}

std::vector<OutputActivation> FuseActivations(NetGraph& graph) {
  const Readers readers = ReadersIn(graph);
  MoveReluPastMaxPool(graph, readers);
  std::vector<OutputActivation> activations;
  for (const std::vector<int>& of : readers) {
    OutputActivation& after = activations.emplace_back();
    if (of.size() != 1 || !IsRelu(graph.nodes[of[0]])) continue;
    after.kind = Activation::kRelu;
    const ReluConfig& relu = graph.nodes[of[0]].config->relu();
    if (relu.has_max()) after.max = relu.max();
  }
  return activations;
}

}  // namespace gyre
