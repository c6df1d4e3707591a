// activation_fusion.h: moves activations behind poolings, or into the layer that precedes them.
#pragma once

#include <limits>
#include <vector>

#include "layers/interface/layer.h"
#include "models/schema/graph.h"

namespace gyre {

// An activation that a layer may apply to its output for the next layer.
struct OutputActivation {
  Activation kind = Activation::kNone;
  double max = std::numeric_limits<double>::quiet_NaN();  // a ReLU's upper bound; NaN: none
};

// Moves each ReLU behind the max-pooling that is its only reader.  The two commute exactly, as the
// largest x has the largest max(x, 0), and a maximum of 0 has no gradient.  The ReLU then has fewer
// elements, and the unpooled ones need not be stored for backward.  Returns by node the activation
// of its only reader, which it may apply to its output.
std::vector<OutputActivation> FuseActivations(NetGraph& graph);

}  // namespace gyre
