// net_spec.h: a net inferred from its text, for one batch size.  Plain data, filled by InferNet. It
// has each layer's declared states, how values share memory, and which gradients exist.
#pragma once

#include <memory>
#include <vector>

#include "engine/training/parameter.h"
#include "engine/training/run_shape.h"
#include "models/schema/graph.h"

namespace gyre {

// A net input, or an output of a node.  An output is named as its node, and from the second on has
// its number too, as in "split:1".
struct NetValue {
  std::string name;
  Shape shape = {};
  DType dtype = DType::kF32;
  int batch_axis = 0;               // axis of the samples
  int producer = -1;                // node; -1: net input
  int output = 0;                   // number among the producer's outputs
  std::vector<int> consumers = {};  // nodes, ascending, once for each use
  int memory = -1;                  // the value whose memory it shares, or itself
  size_t memory_offset = 0;         // bytes, into that value
  bool needs_gradient = false;      // a parameter precedes it, and a loss follows

  size_t bytes() const { return static_cast<size_t>(shape.elements()) * SizeOf(dtype); }
};

struct NetNode {
  const LayerConfig* config = nullptr;
  std::string where;  // position in the net's text, "net.textproto:7:1"
  std::shared_ptr<Layer> layer;
  LayerSpec spec;
  std::vector<int> inputs;                    // values
  std::vector<int> outputs;                   // values
  bool backward = false;                      // takes part in the backward pass
  Activation activation = Activation::kNone;  // applied by forward for the next layer
  bool applied_by_producer = false;           // forward does nothing, as the producer applies it
  bool undone_by_producer = false;            // nor does backward
  bool recomputed = false;                    // forward runs again before backward reads its output
  std::vector<int> parameters;                // by state: index into the ParameterSet, or -1

  bool trained() const;
  bool IsMinimised() const { return backward && spec.loss_output >= 0 && spec.loss_weight > 0; }
  // The value of an input or output state.
  int value_of(int state) const {
    const auto s = static_cast<size_t>(state);
    return s < inputs.size() ? inputs[s] : outputs[s - inputs.size()];
  }
};

// A state that a layer carries between batches.  After node `node` has finished a batch, state `to`
// takes the value of state `from`.
struct CarriedState {
  int node, from, to;
};

struct NetSpec {
  bool train = true;
  RunShape shape;
  std::vector<NetValue> values;  // net inputs first, then node outputs in node order
  std::vector<NetNode> nodes;
  std::vector<CarriedState> carried = {};  // by node, then state `to`
  int inputs = 0;                          // number of net inputs
  // Configs of conversions between precisions, which are nodes of the net's own.
  std::vector<std::shared_ptr<const LayerConfig>> conversions;

  bool IsLoss(int value) const;
  // The net input that the value is, or views whole, or -1.
  int InputViewedBy(int value) const;
  // The node of the first minimised loss whose mean is over a number that only the data tell
  // (LayerSpec::count), or -1.
  int CountingLoss() const;
};

std::string NameOf(const NetSpec& net, const CarriedState& carried);  // LAYER.STATE

// "conv2d", or "to F32" for a conversion.
std::string TypeOf(const NetSpec& net, const NetNode& node);

// Whether backward of the node reads `value`, one of its inputs.
bool ReadsInBackward(const NetNode& node, int value);

// Adds the layer's name and file:line:column to an error.
absl::Status AtLayer(const Parsed<NetConfig>& net, const LayerConfig& layer,
                     const absl::Status& status);

struct InferNetOptions {
  bool train = true;
  bool recompute = true;  // cheap outputs are computed again for backward (ChooseRecomputed)
  RunShape shape;
  const Primitives* primitives = nullptr;  // outlives the result
  // The net whose parameters and layouts this one uses.  Null: this net makes the parameters.
  const NetSpec* same_parameters_as = nullptr;
};

// Asks layers for states, shapes and costs, and allocates and runs nothing.  --plan prints it.
// Fills `parameters` if options.same_parameters_as is null, else searches it.
// Errors: InvalidArgument with file:line:column and the layer's name, from a layer, or for
//   no loss, no trained parameter, or a trained parameter that no loss depends on
//   a layer with parameters that the training net lacks
absl::StatusOr<NetSpec> InferNet(const Parsed<NetConfig>& config, const InferNetOptions& options,
                                 ParameterSet& parameters);

}  // namespace gyre
