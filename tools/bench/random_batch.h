// random_batch.h: a batch of random numbers, for measurements.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/training/step/owned_batch.h"

namespace gyre {

// Bytes and reals are random, and the same each time.  An integer is what `integer` says of its
// input's index and its own.  Errors: those of allocation.
absl::StatusOr<OwnedBatch> RandomBatch(
    Device& device, const NetPlan& plan,
    const std::function<int64_t(int input, int64_t element)>& integer);

}  // namespace gyre
