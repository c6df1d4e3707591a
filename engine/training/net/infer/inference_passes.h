// inference_passes.h: what InferNet asks of the rest of its room.  Private to it.
#pragma once

#include <limits>
#include <vector>

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Removes the layers on which no loss of the shape's turn depends.
void KeepTurn(const RunShape& shape, NetGraph& graph);

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

// Finds each state's parameter, which layers share by name, and nets by layer.  Fills
// node.parameters.  With `makes_them`, missing parameters are added to `parameters`.
// Errors: InvalidArgument for
//   two parameters of one name in a layer, or of different shape, type, storage or multipliers
//   a second parameter of a name that gives another initializer
//   a state that is missing, or whose size or storage is not that of the net which made it
absl::Status BindParameters(bool makes_them, NetNode& node, ParameterSet& parameters);

// Clears NetValue::needs_gradient of values that no loss depends on, and sets NetNode::backward.
// Errors: InvalidArgument if there is no loss or trained parameter, or if no loss depends on one.
absl::Status FindNeededGradients(const Parsed<NetConfig>& config, NetSpec& net);

// Sets NetValue::memory and memory_offset.  A view, or an activation applied by its producer,
// shares its input's memory.  An in-place layer's output does so unless backward or a later layer
// reads that memory.  An input with Alias::input_is_slice moves into the output.
void ShareMemory(NetSpec& net);

// Sets NetNode::recomputed of cheap layers, together for all outputs that share one memory.
// Backward must read that memory with much more work than recomputation takes, and the layers'
// inputs must be stored anyway.  Precondition: ShareMemory.
void ChooseRecomputed(NetSpec& net);

}  // namespace gyre
