// step_block.h: what a step keeps on the device beside tensors: scalars that go in, and what is
// found on the way.  It lies in the net's arena as the plan's state "step" (net/net_trace.h), in
// front of the metrics, so that one copy brings it up and one takes fault, report and metrics down.
#pragma once

#include <array>

#include "layers/layer.h"

namespace gyre {

// Training iterations that may be started and not finished; they take turns between as many lanes,
// each with memory of its own for what comes in and goes out.
inline constexpr int kMostStepsInFlight = 2;

// What an optimizer needs of a step.
struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;      // from clipping; optimizers multiply each gradient by it
  double correction[2] = {0, 0};  // the optimizer's own (Adam: of its moments' bias)
};

// What clipping found.
struct GradientReport {
  double norm = 0;          // of all gradients together, before clipping
  int64_t bad_bucket = -1;  // the first whose sum of squares is not finite
};

struct StepBlock {
  BatchPosition position;
  std::array<UpdateScalars, kMostStepsInFlight> updates;  // by lane: the other's may be under way
  Fault fault;
  GradientReport gradients;
};

// Scratch that suffices to measure gradients of any length; SumSquares checks it.
inline constexpr size_t kSumSquaresScratchBytes = size_t{8} << 10;

}  // namespace gyre
