// step_simulation.h: what training steps of several ranks take, their sums given: ranks compute,
// layer by layer, some slower than others; a bucket's sum begins when its gradients are there and
// the link is free; who needs an update waits for it.  Pure functions: the same arguments give the
// same numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "distributed/scaling/workload.h"

namespace gyre {

// When sums run.
enum class StepSchedule : uint8_t {
  kNone,      // behind backward; the next forward waits for all
  kBackward,  // under backward, one after the other; the next forward waits for all
  kForward,   // as Gyre: several at once, the most urgent first; a layer's next forward waits for
              // its own, and updates are made as they arrive
};

// How much longer than it should a rank computes.
struct Stragglers {
  double jitter = 0;   // of each rank's step, on average: exponentially distributed
  double slowest = 1;  // rank 0, always: so many times as long
  uint64_t seed = 1;
  double Factor(int rank, int step) const;
};

struct StepSimulation {
  // A bucket's sum: its start, and what it takes of the link.
  struct BucketSum {
    double start_s = 0, link_s = 0;
  };
  int ranks = 1;  // that compute
  std::vector<WorkloadBucket> buckets = {};
  std::vector<BucketSum> sums = {};  // by bucket
  StepSchedule schedule = StepSchedule::kForward;
  // In place of sums, which begin when the last rank is ready, a parameter server: a rank's own
  // gradients go to their owners and what these make of them comes back, as soon as they have, of
  // all ranks, those of so many steps before.  0: bulk synchronous; nothing: asynchronous.
  bool served = false;
  std::optional<int> staleness = 0;
  Stragglers stragglers = {};
  int steps = 20;  // of which the first quarter is not counted; more than one
};

// Seconds a step, once it goes on as ever: as many steps as all ranks make, over ranks.
double StepSeconds(const Workload& workload, const StepSimulation& simulation);

// Of all sums, each ready at once, and nothing else.
double SumsSeconds(const StepSimulation& simulation);

}  // namespace gyre
