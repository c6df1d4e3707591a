// factory.h: makes a layer from its configuration.  The catalogue, layers.bzl, generates the
// definition.
#pragma once

#include <memory>

#include "layers/interface/layer.h"

namespace gyre {

// Errors: InvalidArgument for a wrong configuration, with the field, expected and got, or for one
// without a type, with all types.
absl::StatusOr<std::unique_ptr<Layer>> CreateLayer(const LayerConfig& config);

}  // namespace gyre
