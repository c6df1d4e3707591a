// parameter_sharing.h: which parameter a layer's state is: a new one, one that another layer has
// under the same shared name, or that of the net which made it.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Fills node.parameters.  makes_them: what `parameters` lacks is added, else it is an error.
// Errors: InvalidArgument for two of one name that differ in shape, storage or multipliers, or
// belong to one layer, or of which the second gives another initializer; for a state whose size or
// storage is not that of the net which made it.
absl::Status BindParameters(bool makes_them, NetNode& node, ParameterSet& parameters);

}  // namespace gyre
