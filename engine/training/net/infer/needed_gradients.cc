#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/training/net/infer/inference_passes.h"

namespace gyre {
namespace {

// The least trainable_from of the parameters that are frozen until then, or 0.
int64_t FirstToTrain(const NetSpec& net) {
  int64_t first = 0;
  for (const NetNode& node : net.nodes) {
    for (const StateSpec& state : node.spec.states) {
      if (state.trainable_from <= net.shape.first_step()) continue;
      first = first == 0 ? state.trainable_from : std::min(first, state.trainable_from);
    }
  }
  return first;
}

}  // namespace

absl::Status FindNeededGradients(const Parsed<NetConfig>& config, NetSpec& net) {
  const bool any_loss = std::any_of(net.nodes.begin(), net.nodes.end(),
                                    [](const NetNode& node) { return node.spec.loss_output >= 0; });
  if (!any_loss) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: the net has no loss to train with; add a layer such as softmax_cross_entropy",
        config.source->file()));
  }
  bool any_trained = false;
  std::vector<bool> reaches_loss(net.values.size(), false);
  for (int i = static_cast<int>(net.nodes.size()) - 1; i >= 0; --i) {
    NetNode& node = net.nodes[i];
    if (node.spec.loss_output >= 0) reaches_loss[node.value_of(node.spec.loss_output)] = true;
    const auto reaches = [&](int output) -> bool { return reaches_loss[output]; };
    const bool any = std::ranges::any_of(node.outputs, reaches);
    node.backward = std::ranges::any_of(node.outputs, [&](int output) {
      return reaches(output) && net.values[output].needs_gradient;
    });
    for (int input : node.inputs) {
      if (any) reaches_loss[input] = true;
    }
    any_trained = any_trained || node.trained();
    if (node.trained() && !node.backward) {
      return AtLayer(config, *node.config,
                     absl::InvalidArgumentError("has parameters that no loss depends on; feed it "
                                                "to a loss or remove it"));
    }
  }
  if (const int64_t first = FirstToTrain(net); !any_trained && first > 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: no parameter trains before step %d, the first trainable_from; leave trainable_from "
        "out where training begins",
        config.source->file(), first));
  }
  if (!any_trained) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: the net has no parameter to train: add a layer such as dense, or give one a "
        "learning_rate_multiplier above 0",
        config.source->file()));
  }
  for (size_t v = 0; v < net.values.size(); ++v) {
    NetValue& value = net.values[v];
    value.needs_gradient = value.needs_gradient && reaches_loss[v];
  }
  return absl::OkStatus();
}

}  // namespace gyre
