// scaling_flags.h: what simulate_scaling is asked: its flags, and what they stand for.
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
  std::vector<int> ranks;         // more and more
  std::vector<std::string> ways;  // to sum, each setup.algorithm in turn; or the server's name
};

// Errors: InvalidArgument naming the flag; those of the files.
absl::StatusOr<ScalingRun> ReadScalingFlags();

}  // namespace gyre
