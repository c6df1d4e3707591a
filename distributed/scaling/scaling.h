// scaling.h: the time of a sum or of a parameter server's round trip, by model and calibration.
// Also the expected training speed on a number of ranks, and a law for the time of an epoch.  Pure
// functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/collectives/choice/selector.h"
#include "distributed/collectives/choice/sum_model.h"
#include "distributed/scaling/step_simulation.h"

namespace gyre {

// The time of S bytes is start_s + byte_s S.
struct SumCost {
  double start_s = 0, byte_s = 0;
};

class SumCosts {
 public:
  // `calibration` is the text that bench_allreduce --calibrate writes, or "" for the model alone.
  // Errors: those of Selector::Calibrated.
  static absl::StatusOr<SumCosts> Create(const LinkCosts& links, std::string_view calibration);

  // The first that applies:
  //   this cluster was measured           the fit of FitCost
  //   others of one host (several) were   the model, times measured over modelled cost of this
  //                                       algorithm there, start and bytes apart
  //   none was                            the model
  // start_s is infinite if the algorithm does not suit the cluster.  Precondition: IsModelled.
  SumCost Of(std::string_view algorithm, ClusterShape shape) const;

  // Gradients to owners and values back to all, with shards by server_shards.h.  The last
  // `dedicated` ranks are servers.  Without any it is the cost of "direct".
  SumCost OfServer(ClusterShape shape, int dedicated) const;

  // Bucket size of a run with this calibration.  Without one, by the costs of this cluster.
  size_t WorthwhileBytes(std::string_view algorithm, ClusterShape shape) const;

  // The fastest algorithm for a sum of `bytes`.
  std::string_view Fastest(double bytes, ClusterShape shape) const;

 private:
  SumCost Modelled(std::string_view algorithm, ClusterShape shape) const;

  LinkCosts links_;
  std::vector<MeasuredCluster> measured_;
};

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
