// data_check.h: a look at every sample before a run begins: what could not be trained on is found
// before there is work to lose, and a digest tells one data set from another.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/data/sets/dataset.h"
#include "engine/training/net/plan/net_plan.h"

namespace gyre {

// The digest of all samples as the net takes them: sizes, stored elements, normalization.  what:
// "training data", for messages.
// Cost: a pass over what is stored.
// Errors: InvalidArgument, with `what`, the sample and the layer, for a real that is not finite
// once it is normalised, and for a label, index or length that a layer does not take and gets as it
// is stored; those of Dataset::Read.
absl::StatusOr<std::string> CheckData(const Dataset& dataset, const NetPlan& net,
                                      const std::string& what);

}  // namespace gyre
