// step_block.h: what a step keeps on the device beside tensors: scalars that go in, and what is
// found on the way.  It lies in the net's arena as the plan's state "step" (net_trace.h), in front
// of the metrics, so that one copy brings it up and one takes fault, gate and metrics down.
#pragma once

#include "layers/layer.h"

namespace gyre {

// What the update gate found.
struct GateReport {
  double norm = 0;          // of all gradients together, before clipping
  int64_t bad_bucket = -1;  // the first whose sum of squares is not finite
};

struct StepBlock {
  StepScalars scalars;
  Fault fault;
  GateReport gate;
};

// Scratch that suffices to measure gradients of any length; SumSquares checks it.
inline constexpr size_t kSumSquaresScratchBytes = size_t{8} << 10;

}  // namespace gyre
