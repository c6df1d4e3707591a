// run_shape.h: what every part of a run agrees on: how many samples, whose, in which type.
#pragma once

#include <cstdint>

#include "engine/runtime/dtype.h"

namespace gyre {

struct RunShape {
  int64_t local = 0, global = 0;  // samples a batch: this rank's, and over all ranks
  int rank = 0, ranks = 1;
  DType compute = DType::kF32;
  uint64_t seed = 1;  // all random numbers follow from it
};

}  // namespace gyre
