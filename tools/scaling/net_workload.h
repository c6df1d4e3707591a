// net_workload.h: a net's computation and communication by layer, for simulate_scaling, from the
// plan that training makes.  Allocates no device memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "distributed/scaling/workload.h"
#include "models/schema/parse.h"

namespace gyre {

struct NetWorkloadOptions {
  int64_t batch = 1;    // samples a step
  double step_s = 0;    // of a step that runs alone.  0: from its FLOPs
  double flops = 0;     // a second.  Unused if step_s is given
  double update_s = 0;  // updates' share of step_s
  // Each layer's share of a step, in any unit, by layer of the result.  Empty: as its FLOPs.
  std::vector<WorkloadLayer> parts = {};
  double device_bytes = 0;        // 0: all that the net needs
  double copied_bytes_per_s = 0;  // each way, if the net pages
};

// A sliced layer counts once a slice.  Paging, planned as in training, slows layers in proportion.
// Errors: those of PlanModel and PlanPaging, and InvalidArgument if `parts` are of another net.
absl::StatusOr<Workload> WorkloadOf(const Parsed<NetConfig>& net,
                                    const NetWorkloadOptions& options);

}  // namespace gyre
