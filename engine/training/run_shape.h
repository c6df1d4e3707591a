// run_shape.h: what every part of a run agrees on: how many samples, whose, in which type, and how
// they reach its nets.
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

// How batches reach a net's inputs.
struct Feed {
  int image = -1, label = -1;  // the inputs that images and labels are for; -1: there is none
  // As pixels, on a stream of their own into device memory of their own, while the step before
  // computes, and from there normalised into the inputs; else as values, straight into the inputs,
  // which is best where the device has the host's memory.
  bool ahead = false;

  // The type of a batch's images.
  DType images(DType compute) const { return ahead ? DType::kU8 : compute; }
};

// Training steps that may be started and not finished; each has a batch ahead of its own.
inline constexpr int kMostStepsInFlight = 2;

}  // namespace gyre
