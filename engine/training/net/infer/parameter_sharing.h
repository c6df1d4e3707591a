// parameter_sharing.h: finds each state's parameter, which layers share by name, and nets by layer.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Fills node.parameters.  With `makes_them`, missing parameters are added to `parameters`.
// Errors: InvalidArgument for
//   two parameters of one name in a layer, or of different shape, type, storage or multipliers
//   a second parameter of a name that gives another initializer
//   a state that is missing, or whose size or storage is not that of the net which made it
absl::Status BindParameters(bool makes_them, NetNode& node, ParameterSet& parameters);

}  // namespace gyre
