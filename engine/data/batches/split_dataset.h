// split_dataset.h: a share of a data set for testing, the rest for training.  Immutable.  Any
// thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/sets/dataset.h"

namespace gyre {

struct SplitDatasets {
  std::unique_ptr<Dataset> train, test;  // share what was split
};

// Splits by HeldOut.  Both keep the order of `dataset`.  `label_input` names the array of classes.
// Errors: InvalidArgument for fewer than two samples, a data set without the classes or groups by
// which to split, or sequences that continue from sample to sample, unless by their groups.
absl::StatusOr<SplitDatasets> Split(std::shared_ptr<const Dataset> dataset,
                                    const HoldOutConfig& config, const std::string& label_input);

}  // namespace gyre
