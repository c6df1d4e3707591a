// factory.h: from a layer's configuration to the layer.  The definition is generated from the
// catalogue, layers.bzl.
#pragma once

#include <memory>

#include "layers/interface/layer.h"

namespace gyre {

// Errors: InvalidArgument if the configuration alone is wrong, naming the field, what was expected
// and got; or if it has no type, naming the types.
absl::StatusOr<std::unique_ptr<Layer>> CreateLayer(const LayerConfig& config);

}  // namespace gyre
