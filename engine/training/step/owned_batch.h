// owned_batch.h: a batch whose arrays its owner fills, with the memory that they are in.  Used by
// one thread.
#pragma once

#include "engine/data/batches/batch.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/net/plan/net_plan.h"

namespace gyre {

struct OwnedBatch {
  Buffer memory;
  Batch batch;  // of BatchArrays and this rank's samples, 0 and on

  // `device`, which can copy the arrays, outlives the result.  Errors: those of allocation.
  static absl::StatusOr<OwnedBatch> Create(Device& device, const NetPlan& plan);
};

// The largest integer that all layers that read `value` take, or `otherwise` if none says.
int64_t LargestTaken(const NetSpec& net, int value, int64_t otherwise);

}  // namespace gyre
