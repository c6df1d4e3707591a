// net_workload.h: a net as simulate_scaling takes it: what its layers compute and exchange, from
// the plan that training makes of it.  Allocates no device memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "distributed/scaling/workload.h"
#include "models/schema/parse.h"

namespace gyre {

struct NetWorkloadOptions {
  int64_t batch = 1;    // samples a step
  double step_s = 0;    // of a step that runs alone; 0: as its FLOPs say
  double flops = 0;     // a second; unused where step_s is given
  double update_s = 0;  // of step_s: what updates take
  // What layers take of a step, in parts of any unit: by layer of the result; none: as FLOPs say.
  std::vector<WorkloadLayer> parts = {};
  double device_bytes = 0;        // 0: all that the net needs
  double copied_bytes_per_s = 0;  // each way, where the device has too little
};

// A layer that is cut into pieces counts as so many.  What pages is planned as training would, and
// makes all layers take longer, in proportion.  Errors: those of PlanModel and of PlanPaging;
// InvalidArgument where `parts` are of another net.
absl::StatusOr<Workload> WorkloadOf(const Parsed<NetConfig>& net,
                                    const NetWorkloadOptions& options);

}  // namespace gyre
