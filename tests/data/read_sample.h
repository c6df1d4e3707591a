// read_sample.h: reads a sample as it is stored.
#pragma once

#include "engine/data/sets/dataset.h"

namespace gyre {

// It lives until the array's next sample is read.
inline absl::StatusOr<Tensor> ReadSample(const Dataset& dataset, int64_t index, size_t array) {
  static SampleMemory memory;
  return dataset.Read(index, array, memory, {});
}

}  // namespace gyre
