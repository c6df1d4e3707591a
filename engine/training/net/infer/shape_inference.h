// shape_inference.h: from a net's text to its spec for one batch size: the layers in order, each
// asked for its states, their shapes and what they cost.  No memory is allocated and nothing has
// run; --plan prints from here.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

struct InferNetOptions {
  bool train = true;
  RunShape shape;
  const Primitives* primitives = nullptr;  // outlives the result
  // A net whose parameters, and their layouts, this one uses; null: this net makes the parameters.
  const NetSpec* same_parameters_as = nullptr;
};

// Errors: InvalidArgument with file:line:column and the layer's name: those of the layers; no loss
// in a training net, or no trained parameter; one that no loss depends on; a layer with parameters
// that the training net lacks.  `parameters` is filled if options.same_parameters_as is null, else
// searched.
absl::StatusOr<NetSpec> InferNet(const Parsed<NetConfig>& config, const InferNetOptions& options,
                                 ParameterSet& parameters);

}  // namespace gyre
