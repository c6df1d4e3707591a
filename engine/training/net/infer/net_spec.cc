#include "engine/training/net/infer/net_spec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gyre {

bool NetNode::trained() const {
  return std::ranges::any_of(spec.states, [](const StateSpec& state) { return state.trained(); });
}

bool NetSpec::IsLoss(int value) const {
  const int producer = values[value].producer;
  if (producer < 0 || nodes[producer].spec.loss_output < 0) return false;
  return nodes[producer].value_of(nodes[producer].spec.loss_output) == value;
}

int NetSpec::InputViewedBy(int value) const {
  const int memory = values[value].memory;
  return memory < inputs && values[value].bytes() == values[memory].bytes() ? memory : -1;
}

int NetSpec::CountingLoss() const {
  const auto counts = [](const NetNode& node) {
    return node.IsMinimised() && node.spec.count >= 0;
  };
  const auto found = std::ranges::find_if(nodes, counts);
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::string NameOf(const NetSpec& net, const CarriedState& carried) {
  const NetNode& node = net.nodes[carried.node];
  return absl::StrCat(node.config->name(), ".", node.spec.states[carried.to].name);
}

std::string TypeOf(const NetSpec& net, const NetNode& node) {
  const auto* field = LayerConfig::descriptor()->FindFieldByNumber(node.config->type_case());
  if (field != nullptr) return field->name();
  return absl::StrCat("to ", std::string(DTypeName(net.values[node.outputs[0]].dtype)));
}

bool ReadsInBackward(const NetNode& node, int value) {
  for (size_t k = 0; node.backward && k < node.inputs.size(); ++k) {
    if (node.inputs[k] == value && (node.spec.states[k].backward & kRead) != 0) return true;
  }
  return false;
}

absl::Status AtLayer(const Parsed<NetConfig>& net, const LayerConfig& layer,
                     const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(), absl::StrFormat("%s: layer \"%s\": %s", net.source->Where(layer), layer.name(),
                                     status.message()));
}

}  // namespace gyre
