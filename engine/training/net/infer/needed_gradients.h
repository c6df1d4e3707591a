// needed_gradients.h: which values of a net need a gradient, and which nodes pass them on.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Keeps NetValue::needs_gradient only where a loss depends on the value, and sets
// NetNode::backward.
// Errors: InvalidArgument for no loss, no trained parameter, or one that no loss depends on.
absl::Status FindNeededGradients(const Parsed<NetConfig>& config, NetSpec& net);

}  // namespace gyre
