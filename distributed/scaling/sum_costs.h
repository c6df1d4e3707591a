// sum_costs.h: what a sum over ranks, or a parameter server's round trip, takes on a cluster: by
// the model of messages, put right by what was measured there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/collectives/choice/selector.h"
#include "distributed/collectives/choice/sum_model.h"

namespace gyre {

// Of S bytes: start_s + byte_s S.
struct SumCost {
  double start_s = 0, byte_s = 0;
};

class SumCosts {
 public:
  // calibration: the text that bench_allreduce --calibrate writes; "": the model alone.  Errors:
  // Selector::Calibrated's.
  static absl::StatusOr<SumCosts> Create(const LinkCosts& links, std::string_view calibration);

  // The modelled sums, and "naive".
  static bool Has(std::string_view algorithm);

  // Of a cluster that was measured what FitCost made of it.  Of another the model's, times what
  // the sums of that algorithm took over the model's on all that were measured, of clusters of one
  // host or of several, as this is; start and bytes each on their own.  start_s is infinite where
  // the algorithm is not for such a cluster.  Precondition: Has(algorithm).
  SumCost Of(std::string_view algorithm, ClusterShape shape) const;

  // What workers send to owners, and these back to all, of which the last `dedicated` ranks run
  // none, as server_shards.h shares out; as "direct" does, if there are none.
  SumCost OfServer(ClusterShape shape, int dedicated) const;

  // By what buckets are cut, as a run with such a calibration would: where there is none, of this
  // cluster's costs.
  absl::StatusOr<size_t> WorthwhileBytes(std::string_view algorithm, ClusterShape shape) const;

  // The algorithm that sums so many bytes soonest.
  std::string_view Fastest(double bytes, ClusterShape shape) const;

 private:
  struct Measured {
    ClusterShape shape;
    Selector::Cost cost;
  };
  SumCost Modelled(std::string_view algorithm, ClusterShape shape) const;

  LinkCosts links_;
  std::string calibration_;
  std::vector<Measured> measured_;
};

}  // namespace gyre
