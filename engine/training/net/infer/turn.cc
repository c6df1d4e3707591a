#include <algorithm>

#include "engine/training/net/infer/inference_passes.h"

namespace gyre {

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

}  // namespace gyre
