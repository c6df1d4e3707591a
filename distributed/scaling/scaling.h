// scaling.h: the expected training speed on a number of ranks, and a law for the time of an epoch.
// Pure functions.
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
  std::string algorithm = "auto";  // kAllreduce only: one that IsModelled, or "auto"
  SyncMode sync = SyncMode::kAllreduce;
  int staleness = 0;  // kSsp only
  int servers = 0;    // ranks of a parameter server that compute no batch
  StepSchedule schedule = StepSchedule::kForward;
  bool bucket_a_gradient = false;  // a bucket for each gradient, instead of FitBuckets
  // Bytes a second, each way, between a rank's device and its host, for summed gradients and pages.
  // With 0 gradients are summed in place.
  double copied_bytes_per_s = 0;
  Stragglers stragglers = {};
  int steps = 20;
};

// All times are in seconds.
struct ScalingPoint {
  int ranks = 1, hosts = 1;
  int buckets = 0;
  double alone = 0;       // a step of one rank
  double step = 0;        // a step of all ranks
  double sums = 0;        // all buckets' sums, without computation
  double exposed = 0;     // `step` minus a step on an infinitely fast network
  double waiting = 0;     // the latter minus `alone`, for stragglers
  double efficiency = 0;  // samples a second, over those of as many ranks alone
  double samples_per_second = 0;
};

// Each rank has the workload's samples.  Errors: InvalidArgument for a setup that does not suit the
// number of ranks.
absl::StatusOr<ScalingPoint> SimulateScaling(const Workload& workload, const SumCosts& costs,
                                             const ScalingSetup& setup, int ranks);

// T(N) = (a + b log2 N) / N for the times of an epoch, by least squares of N T(N).
// Source: the law of the distributed training of FRNN (docs/benchmarks/scaling.md).
struct EpochFit {
  double a_s = 0, b_s = 0;
  double residual = 0;  // root mean square of the relative errors
};
// Precondition: points have at least two numbers of ranks, and each some samples a second.
EpochFit FitEpoch(std::span<const ScalingPoint> points, double samples);

}  // namespace gyre
