// step_simulation.h: the time of training steps of several ranks, for given times of their sums.
//
// Ranks compute layer by layer, some slower than others.  A bucket's sum begins when its gradients
// and the link are ready.  A rank that needs an update waits for it.  Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "distributed/scaling/workload.h"

namespace gyre {

// When sums run.
enum class StepSchedule : uint8_t {
  kNone,      // after backward; the next forward waits for all
  kBackward,  // under backward, one by one; the next forward waits for all
  kForward,   // as Gyre: several at once, urgent ones first; each layer's next forward waits for
              // its own, and updates run as they arrive
};

// How much longer than expected ranks compute.
struct Stragglers {
  double jitter = 0;   // mean of each rank's relative delay in a step, exponentially distributed
  double slowest = 1;  // factor of rank 0 in all steps
  uint64_t seed = 1;
  double Factor(int rank, int step) const;
};

struct StepSimulation {
  // The start of a bucket's sum, and its time on the link.
  struct BucketSum {
    double start_s = 0, link_s = 0;
  };
  int ranks = 1;  // workers
  std::vector<WorkloadBucket> buckets = {};
  std::vector<BucketSum> sums = {};  // by bucket
  StepSchedule schedule = StepSchedule::kForward;
  // A parameter server instead of sums.  A rank sends its own gradients to the owners.  New values
  // come back once they have all ranks' gradients of `staleness` steps before.
  //   0  bulk synchronous;  none  asynchronous
  bool served = false;
  std::optional<int> staleness = 0;
  Stragglers stragglers = {};
  int steps = 20;  // above 1; the first quarter is not counted
};

// Seconds of a step in the steady state, by the mean number of steps that a rank makes in a second.
double StepSeconds(const Workload& workload, const StepSimulation& simulation);

// Seconds of all sums if all are ready at once, without computation.
double SumsSeconds(const StepSimulation& simulation);

}  // namespace gyre
