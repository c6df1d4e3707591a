#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/training/net/infer/inference_passes.h"

namespace gyre {

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
