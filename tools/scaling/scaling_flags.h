// scaling_flags.h: reads the flags of simulate_scaling.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/scaling/scaling.h"

namespace gyre {

struct ScalingRun {
  Workload workload;
  SumCosts costs;
  ScalingSetup setup;
  std::vector<int> ranks;         // increasing
  std::vector<std::string> ways;  // of summing: values of setup.algorithm, or the server's name
};

// Errors: InvalidArgument naming the flag, and those of the files.
absl::StatusOr<ScalingRun> ReadScalingFlags();

}  // namespace gyre
