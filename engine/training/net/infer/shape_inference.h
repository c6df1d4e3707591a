// shape_inference.h: infers a net's spec from its text, for one batch size.  It asks layers for
// states, shapes and costs, and allocates and runs nothing.  --plan prints it.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

struct InferNetOptions {
  bool train = true;
  bool recompute = true;  // cheap outputs are computed again for backward (ChooseRecomputed)
  RunShape shape;
  const Primitives* primitives = nullptr;  // outlives the result
  // The net whose parameters and layouts this one uses.  Null: this net makes the parameters.
  const NetSpec* same_parameters_as = nullptr;
};

// Fills `parameters` if options.same_parameters_as is null, else searches it.
// Errors: InvalidArgument with file:line:column and the layer's name, from a layer, or for
//   no loss, no trained parameter, or a trained parameter that no loss depends on
//   a layer with parameters that the training net lacks
absl::StatusOr<NetSpec> InferNet(const Parsed<NetConfig>& config, const InferNetOptions& options,
                                 ParameterSet& parameters);

}  // namespace gyre
