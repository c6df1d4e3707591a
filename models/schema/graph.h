// graph.h: the layers of a net that take part in a phase, in an order in which each follows its
// inputs.  A pure function of the net's message; shapes come later.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "models/schema/parse.h"

namespace gyre {

// Where a layer's input comes from.
struct Source {
  bool is_net_input = false;
  int index = 0;   // into NetConfig::input, or into NetGraph::nodes
  int output = 0;  // of the node
};

struct Node {
  const LayerConfig* config = nullptr;  // owned by the parsed net
  std::vector<Source> inputs;
};

// A layer's name is its first output's name; NAME:K is output K's.  Order: by position in the file
// where the edges leave a choice.
struct NetGraph {
  std::vector<Node> nodes;
};

// Keeps layers whose phase is ALWAYS or `phase` (TRAIN or TEST).  A layer without `input` takes the
// output of the nearest layer above it in the file that takes part in the phase, or the first net
// input.  How many outputs a layer has is not known here.  Errors: InvalidArgument with
// file:line:column for an unknown input (with "did you mean"; a malformed number of an output;
// or saying that the input is of the other phase) and for a cycle (naming its layers in order).
absl::StatusOr<NetGraph> BuildGraph(const Parsed<NetConfig>& net, LayerConfig::Phase phase);

}  // namespace gyre
