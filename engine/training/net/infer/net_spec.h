// net_spec.h: a net inferred for one batch size: each layer with its declared states, how values
// share memory, and which gradients exist.  Plain data, filled by shape_inference.h.
#pragma once

#include <memory>
#include <vector>

#include "engine/training/parameter.h"
#include "engine/training/run_shape.h"
#include "models/schema/graph.h"

namespace gyre {

// A tensor that flows along the graph: a net input, or an output of a node, which bears the node's
// name, and from the second on its number too: "split:1".
struct NetValue {
  std::string name;
  Shape shape = {};
  DType dtype = DType::kF32;
  int batch_axis = 0;               // of the samples
  int producer = -1;                // node; -1: net input
  int output = 0;                   // which of the producer's
  std::vector<int> consumers = {};  // nodes, ascending, once for each use
  int memory = -1;                  // the value whose memory it shares (itself if it has its own)
  size_t memory_offset = 0;         // bytes, into that value
  bool needs_gradient = false;      // some parameter above it, and a loss below it

  size_t bytes() const { return static_cast<size_t>(shape.elements()) * SizeOf(dtype); }
};

struct NetNode {
  const LayerConfig* config = nullptr;
  std::string where;  // its place in the net's text, "net.textproto:7:1"
  std::shared_ptr<Layer> layer;
  LayerSpec spec;
  std::vector<int> inputs;                    // values
  std::vector<int> outputs;                   // values
  bool backward = false;                      // takes part in the backward pass
  Activation activation = Activation::kNone;  // that forward applies for the layer after it
  bool applied_by_producer = false;           // such a layer: forward has nothing left to do
  bool undone_by_producer = false;            // nor has backward
  bool recomputed = false;                    // forward runs again in backward, for its output
  std::vector<int> parameters;                // for each state: index into the ParameterSet, or -1

  // Whether training changes some state of it.
  bool trained() const;
  // Whether it is a loss that changes some parameter.
  bool IsMinimised() const { return backward && spec.loss_output >= 0 && spec.loss_weight > 0; }
  // The value that an input or output state stands for.
  int value_of(int state) const {
    const auto s = static_cast<size_t>(state);
    return s < inputs.size() ? inputs[s] : outputs[s - inputs.size()];
  }
};

struct NetSpec {
  bool train = true;
  RunShape shape;
  std::vector<NetValue> values;  // net inputs first, then node outputs in node order
  std::vector<NetNode> nodes;
  int inputs = 0;  // how many of the values are net inputs
  // Of nodes of the net's own: conversions between precisions.
  std::vector<std::shared_ptr<const LayerConfig>> conversions;

  bool IsLoss(int value) const;
  // Of those that are minimised the first loss whose mean is over a number that only the data tell
  // (LayerSpec::count): a node; -1: there is none.
  int CountingLoss() const;
};

// What a layer carries from batch to batch: once node `node` is done with a batch, its state `to`
// takes the value of its state `from`.
struct CarriedState {
  int node, from, to;
};
std::vector<CarriedState> CarriedStates(const NetSpec& net);          // by node, then state `to`
std::string NameOf(const NetSpec& net, const CarriedState& carried);  // LAYER.STATE

// "conv2d"; of a conversion "to F32".
std::string TypeOf(const NetSpec& net, const NetNode& node);

// Whether forward of the node may run again: its layer then leaves what lasts, and what ranks sum,
// as it is.
bool IsRepeatable(const NetNode& node);

// Whether backward of the node reads the value, one of its inputs.
bool ReadsInBackward(const NetNode& node, int value);

// The node that reads the value in backward before all others do, the last one; -1: none does.
int LastReaderInBackward(const NetSpec& net, int value);

// The error of a layer, with file:line:column and its name.
absl::Status AtLayer(const Parsed<NetConfig>& net, const LayerConfig& layer,
                     const absl::Status& status);

}  // namespace gyre
