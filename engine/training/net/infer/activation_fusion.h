// activation_fusion.h: where a net's activations are computed: what another order of layers saves,
// and what the layer ahead applies as it stores its output.
#pragma once

#include <limits>
#include <vector>

#include "layers/interface/layer.h"
#include "models/schema/graph.h"

namespace gyre {

// What a layer may apply to its output for the one after it.
struct OutputActivation {
  Activation kind = Activation::kNone;
  double max = std::numeric_limits<double>::quiet_NaN();  // of a ReLU; NaN: no bound
};

// Moves each ReLU whose only reader is a max-pooling behind that.  The two commute, exactly: the
// largest x has the largest max(x, 0), and where that is 0, so is the gradient.  After the pooling
// it has fewer elements to look at, and the unpooled ones need not be kept for backward.
// Returns by node what it may apply to its output: the activation of the only layer that reads it.
std::vector<OutputActivation> FuseActivations(NetGraph& graph);

}  // namespace gyre
