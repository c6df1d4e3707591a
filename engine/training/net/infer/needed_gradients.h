// needed_gradients.h: which values need a gradient, and which nodes run backward.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Clears NetValue::needs_gradient of values that no loss depends on, and sets NetNode::backward.
// Errors: InvalidArgument if there is no loss or trained parameter, or if no loss depends on one.
absl::Status FindNeededGradients(const Parsed<NetConfig>& config, NetSpec& net);

}  // namespace gyre
