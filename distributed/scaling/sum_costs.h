// sum_costs.h: the time of a sum or of a parameter server's round trip, by model and calibration.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/collectives/choice/selector.h"
#include "distributed/collectives/choice/sum_model.h"

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

}  // namespace gyre
