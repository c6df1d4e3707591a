#include <algorithm>
#include <vector>

#include "engine/runtime/check.h"
#include "engine/training/net/infer/inference_passes.h"

namespace gyre {
namespace {

struct ValueUse {
  bool kept = false;       // a net input, which stays as it was uploaded, or read in backward
  int last_consumer = -1;  // node
};

ValueUse UseOf(const NetSpec& net, const NetValue& value) {
  if (value.producer < 0) return {.kept = true};
  const NetNode& producer = net.nodes[value.producer];
  ValueUse use;
  const StateSpec& state = producer.spec.states[producer.inputs.size() + value.output];
  use.kept = producer.backward && state.backward != kNone;
  const int self = producer.outputs[value.output];
  for (int consumer : value.consumers) {
    use.last_consumer = consumer;  // they ascend
    use.kept |= ReadsInBackward(net.nodes[consumer], self);
  }
  return use;
}

void Merge(const ValueUse& from, ValueUse& to) {
  to.kept |= from.kept;
  to.last_consumer = std::max(to.last_consumer, from.last_consumer);
}

// Whether the node also reads another part of its input's memory, which its output would overwrite
// too early.
bool ReadsAnotherPart(const NetSpec& net, const NetNode& node, const NetValue& input) {
  return std::ranges::any_of(node.inputs, [&](int v) {
    return net.values[v].memory == input.memory &&
           net.values[v].memory_offset != input.memory_offset;
  });
}

// Moves an input, with all values in its memory, into the output that contains it.  Does nothing if
// that memory is a net input's, or already part of a larger one.
void PlaceInOutput(NetSpec& net, const Alias& alias, const NetNode& node,
                   std::vector<ValueUse>& uses) {
  const int root = net.values[node.value_of(alias.input)].memory;
  const int output = node.value_of(alias.output);
  if (net.values[root].producer < 0 ||
      net.values[root].bytes() != net.values[node.value_of(alias.input)].bytes()) {
    return;
  }
  for (NetValue& value : net.values) {
    if (value.memory != root) continue;
    value.memory = output;
    value.memory_offset += alias.offset_bytes;
  }
  Merge(uses[root], uses[output]);
}

}  // namespace

void ShareMemory(NetSpec& net) {
  // By value.  The first of the values that share memory has the use of all.
  std::vector<ValueUse> uses;
  for (const NetValue& value : net.values) uses.push_back(UseOf(net, value));
  for (int i = 0; i < static_cast<int>(net.nodes.size()); ++i) {
    NetNode& node = net.nodes[i];
    for (const Alias& alias : node.spec.aliases) {
      if (alias.input_is_slice) {
        PlaceInOutput(net, alias, node, uses);
        continue;
      }
      const NetValue& input = net.values[node.value_of(alias.input)];
      const int memory = input.memory, output = node.value_of(alias.output);
      const bool must = alias.must || node.applied_by_producer;
      if (!must && (uses[memory].kept || uses[memory].last_consumer > i ||
                    ReadsAnotherPart(net, node, input))) {
        continue;
      }
      net.values[output].memory = memory;
      net.values[output].memory_offset = input.memory_offset + alias.offset_bytes;
      Merge(uses[output], uses[memory]);
    }
    GYRE_CHECK(!node.applied_by_producer ||
               net.values[node.outputs[0]].memory == net.values[node.inputs[0]].memory);
  }
}

}  // namespace gyre
