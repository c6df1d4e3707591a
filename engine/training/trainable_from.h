// trainable_from.h: the steps from which parameters train (ParameterConfig.trainable_from).  They
// cut a run into phases, which have 0 and these as their first steps.  Pure functions of texts.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "models/schema/net.pb.h"
#include "models/schema/source_map.h"

namespace gyre {

// The most different values above 0 in a net.
inline constexpr int kMostTrainableFrom = 15;

// All parameters' texts in a net or a layer.
std::vector<const ParameterConfig*> ParametersIn(const google::protobuf::Message& message);

// Errors: InvalidArgument, with its position, for a value below 0, one too many, or one above 0 of
// a parameter whose learning_rate_multiplier is 0.
absl::Status CheckTrainableFrom(const NetConfig& net, const SourceMap& source);

// 0 and the net's values, ascending.  Precondition: CheckTrainableFrom.
std::vector<int64_t> PhasesOf(const NetConfig& net);

// Whether the nets are equal, but for values of at least `step` in both: the steps done until then
// have been the same.
bool EqualBefore(int64_t step, const NetConfig& a, const NetConfig& b);

}  // namespace gyre
