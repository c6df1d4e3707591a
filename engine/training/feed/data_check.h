// data_check.h: reads every sample before a run begins, to find data that cannot be trained on
// and to tell data sets apart by a digest.  Pure functions.  Any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/data/sets/dataset.h"
#include "engine/training/net/plan/net_plan.h"

namespace gyre {

// Returns the digest of all samples, over sizes, stored elements and normalization.
// Errors: those of Dataset::Read, and InvalidArgument with `what`, the sample and the layer for
//   a real value              that is not finite after normalization
//   a label, index or length  that a layer reads as it is stored and does not accept
absl::StatusOr<std::string> CheckData(const Dataset& dataset, const NetPlan& net,
                                      const std::string& what);

}  // namespace gyre
