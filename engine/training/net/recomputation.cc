#include "engine/training/net/recomputation.h"

#include <algorithm>
#include <vector>

namespace gyre {
namespace {

// What forward reads must still be there when those that come before the node in backward read the
// output: it is, where the node's own backward reads it.
bool IsKept(const StateSpec& state) {
  switch (state.kind) {
    case StateKind::kInput:
      return state.forward == kNone || (state.backward & kRead) != 0;
    case StateKind::kSaved:
      return (state.backward & kRead) != 0;
    case StateKind::kOutput:
      return state.backward == kNone;
    case StateKind::kParameter:
      return true;
    default:
      return false;
  }
}

// Then that output is not kept either.
bool ReadsRecomputed(const NetSpec& net, const NetNode& node) {
  return std::ranges::any_of(node.inputs, [&](int v) {
    return net.values[v].producer >= 0 && net.nodes[net.values[v].producer].recomputed;
  });
}

bool CanRecompute(const NetSpec& net, const NetNode& node) {
  return node.spec.cheap && node.backward && node.outputs.size() == 1 &&
         node.spec.forward_phases == 1 && std::ranges::all_of(node.spec.states, IsKept) &&
         !ReadsRecomputed(net, node) && LastReaderInBackward(net, node.outputs[0]) >= 0;
}

}  // namespace

void ChooseRecomputed(NetSpec& net) {
  std::vector<int> sharing(net.values.size());  // how many values lie in the memory of each
  for (const Value& value : net.values) ++sharing[value.memory];
  for (NetNode& node : net.nodes) {
    const int output = node.outputs[0];
    const bool has_memory_alone = net.values[output].memory == output && sharing[output] == 1;
    node.recomputed = has_memory_alone && CanRecompute(net, node);
  }
}

}  // namespace gyre
