// largest_batch.h: how many samples a batch may have on a device, found by planning nets of
// different batches.  Allocates nothing.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/training/model/model.h"

namespace gyre {

// The largest of least, ..., most that fits, where all below one that fits do; least - 1 if none
// does.  Looks at twice what is known to fit, and no further; then cuts in half.
int64_t LargestThat(int64_t least, int64_t most, const std::function<bool(int64_t)>& fits);

struct LargestBatch {
  int64_t resident = 0;  // all that a step needs is on the device for good
  int64_t paged = 0;     // the largest step fits; resident, where nothing may move
};

// Whether a batch fits all ranks, of which each says whether it fits its own memory.
using AskAll = std::function<absl::StatusOr<bool>(bool fits)>;

// Over all ranks, of `least` to `most`; least - 1: none.  options: of a run with such a batch, as
// PlanModel takes it.  All ranks call it, and look at the same batches, whatever memory each has.
// Errors: those of PlanModel for the least one, but for the memory's; those of ask_all.
absl::StatusOr<LargestBatch> FindLargestBatch(
    const Parsed<NetConfig>& net, const std::function<ModelOptions(int64_t batch)>& options,
    int64_t least, int64_t most, const AskAll& ask_all = [](bool fits) { return fits; });

}  // namespace gyre
