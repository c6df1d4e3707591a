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
