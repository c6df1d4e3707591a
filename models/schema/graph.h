// graph.h: a net's layers in a phase, each after its inputs, without shapes.  Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "models/schema/parse.h"

namespace gyre {

// The origin of a layer's input.
struct Source {
  bool is_net_input = false;
  int index = 0;   // into NetConfig::input, or into NetGraph::nodes
  int output = 0;  // of the node
};

struct Node {
  const LayerConfig* config = nullptr;  // owned by the parsed net
  std::vector<Source> inputs;
};

// In the file's order where the edges leave a choice.  NAME is a layer's output 0, NAME:K output K.
struct NetGraph {
  std::vector<Node> nodes;
};

// Keeps layers whose phase is ALWAYS or `phase` (TRAIN or TEST).  A layer without `input` gets the
// output of the nearest kept layer above it in the file, or the first net input.  The number of a
// layer's outputs is not known here.
// Errors: InvalidArgument with file:line:column for an input that is unknown ("did you mean"), of
// the other phase, or with a malformed output number, and for a cycle (naming its layers).
absl::StatusOr<NetGraph> BuildGraph(const Parsed<NetConfig>& net, LayerConfig::Phase phase);

// Writes the inputs of layers that state none, so that layers between them may go.
void WriteInputs(const NetGraph& graph, NetConfig& net);

}  // namespace gyre
