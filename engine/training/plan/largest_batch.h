// largest_batch.h: finds the largest batch for a device by planning nets of different batches.
// Allocates no device memory.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/training/model/model_plan.h"

namespace gyre {

struct LargestBatch {
  int64_t resident = 0;  // all states fit on the device at all times
  int64_t paged = 0;     // paging makes it fit; `resident` if the planner is kNone
};

// Whether a batch fits on all ranks.  Each rank says whether it fits its own memory.
using AskAll = std::function<absl::StatusOr<bool>(bool fits)>;

// Searches batches of `least` to `most` samples over all ranks.  Returns least - 1 if none fits.
// `options` are those of a run with such a batch.  Every rank calls it and tries the same batches.
// Errors: those of PlanModel for `least`, except for memory, and those of ask_all.
absl::StatusOr<LargestBatch> FindLargestBatch(
    const Parsed<NetConfig>& net, const std::function<ModelOptions(int64_t batch)>& options,
    int64_t least, int64_t most, const AskAll& ask_all = [](bool fits) { return fits; });

}  // namespace gyre
