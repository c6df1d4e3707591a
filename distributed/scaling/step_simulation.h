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
  std::vector<WorkloadGradient> buckets = {};
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

// The completion times of sums over one link, several at once, in lanes as those of the process
// group.  Sums enter the lanes in turn, and a lane is sequential.  A sum takes its start, during
// which others may use the link, and then the link.  The most urgent has the link, and preempts
// others.  A sum gets the urgency of sums behind it in its lane.  Used by one thread.
class LinkQueue {
 public:
  // With urgent_first the sum submitted last is the most urgent.  Otherwise the first is.
  LinkQueue(int lanes, bool urgent_first) : heads_(lanes, -1), urgent_first_(urgent_first) {}

  // Submits sums 0, 1, ...  Precondition: ready_s does not decrease.
  void Submit(double ready_s, double start_s, double link_s);
  // The completion time of each sum, if no other follows.
  std::vector<double> Done() const;

 private:
  struct QueuedSum {
    double served_from = 0;  // when it may have the link; set once its lane is free
    double start_s = 0, left_s = 0;
    double ready_s = 0;
    double done = -1;
  };
  int lanes() const { return static_cast<int>(heads_.size()); }
  int UrgencyOf(int head) const;
  void Enter(int sum);
  void Serve(double until);

  std::vector<QueuedSum> sums_;
  std::vector<int> heads_;  // by lane: the sum under way, or -1
  double now_ = 0;
  bool urgent_first_;
};

}  // namespace gyre
