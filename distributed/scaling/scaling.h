// scaling.h: what training is expected to reach on so many ranks: steps, efficiency, and the time
// of an epoch as a law of their number.  Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/scaling/step_simulation.h"
#include "distributed/scaling/sum_costs.h"

namespace gyre {

enum class SyncMode : uint8_t { kAllreduce, kBsp, kSsp, kAsync };

struct ScalingSetup {
  int ranks_per_host = 1;
  std::string algorithm = "auto";  // of kAllreduce: one that SumCosts has, or "auto"
  SyncMode sync = SyncMode::kAllreduce;
  int staleness = 0;  // of kSsp
  int servers = 0;    // of a parameter server: of all ranks so many, which run no batch
  StepSchedule schedule = StepSchedule::kForward;
  bool bucket_a_gradient = false;  // a sum for each, in place of buckets as training fits them
  // Bytes a second, each way, between a rank's device and its host: what gradients that are summed
  // go through, and pages.  0: sums are made where gradients lie.
  double copied_bytes_per_s = 0;
  Stragglers stragglers = {};
  int steps = 20;
};

// Seconds, but as named.
struct ScalingPoint {
  int ranks = 1, hosts = 1;
  int buckets = 0;
  double alone = 0;       // a step of one rank
  double step = 0;        // of all
  double sums = 0;        // of all buckets, and nothing else
  double exposed = 0;     // what the step takes longer than with a network that takes no time
  double waiting = 0;     // what that takes longer than alone: for stragglers
  double efficiency = 0;  // samples of a step's time, over those that ranks alone would make
  double samples_per_second = 0;
};

// Of so many ranks, each with the workload's samples.  Errors: InvalidArgument saying what does not
// go with so many ranks.
absl::StatusOr<ScalingPoint> SimulateScaling(const Workload& workload, const SumCosts& costs,
                                             const ScalingSetup& setup, int ranks);

// T(N) = (a + b log2 N) / N, the times of an epoch of so many samples: by least squares of N T(N).
// Source: the law of the distributed training of FRNN (docs/benchmarks/scaling.md).
struct EpochFit {
  double a_s = 0, b_s = 0;
  double residual = 0;  // the root of the mean of the errors' squares, each over the time
};
// Precondition: there are points of two numbers of ranks at least, each of some samples.
EpochFit FitEpoch(std::span<const ScalingPoint> points, double samples);

}  // namespace gyre
