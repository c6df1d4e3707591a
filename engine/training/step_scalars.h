// step_scalars.h: what a step keeps on the device beside tensors: scalars that go in, and what is
// found on the way.  It lies in the net's arena as the plan's state "step" (net/net_trace.h), in
// front of the metrics, so that one copy brings it up and one takes fault, report and metrics down.
#pragma once

#include <array>
#include <cmath>

#include "layers/interface/layer.h"

namespace gyre {

// Training iterations that may be started and not finished; they take turns between as many lanes,
// each with memory of its own for what comes in and goes out.
inline constexpr int kMostStepsInFlight = 2;

// What an optimizer needs of a step.
struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;      // by which optimizers multiply each gradient
  double decay[2] = {0, 0};       // of moments (Adam's), by which correction follows
  double correction[2] = {0, 0};  // of the bias that moments have by starting at 0
  bool skip = false;              // the update is left out: nothing changes

  // For update number `update`, from 0; in double: 1 - decay^t for small t would lose half its
  // digits in float.
  HOST_DEVICE void CorrectBias(double update) {
    for (int k = 0; k < 2; ++k) correction[k] = 1 - std::pow(decay[k], update + 1);
  }
};

// A dynamic loss scale: what lasts from step to step, on the device and in checkpoints.
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;  // in a row, of this scale
  int64_t skipped = 0;     // steps, in all
};

// Beyond which a dynamic loss scale does not grow: within F32, and so is its inverse.
inline constexpr double kMostLossScale = 0x1p100;
// Below which it has nothing left to give: the smallest number that F16 has.
inline constexpr double kLeastLossScale = 0x1p-24;

// Of the batches of one step so far: with what weights the mean of their gradients has the next's.
struct BatchMean {
  double counted = 0;  // that losses' means are over, where only the data tell; else 0
  double kept = 0;     // of the mean so far; 0: there is none, and what memory holds says nothing
  double added = 1;    // of the batch's
};

// What the gate found, and has made of it.
struct GradientReport {
  double norm = 0;            // of all gradients together, before clipping
  int64_t bad_bucket = -1;    // the first whose sum of squares is not finite
  LossScaleState loss_scale;  // if it is dynamic: as it leaves it
};

struct StepScalars {
  BatchPosition position;
  bool first_batch = true;                                // of its step
  double loss_scale = 1;                                  // unless it is dynamic
  std::array<UpdateScalars, kMostStepsInFlight> updates;  // by lane: the other's may be under way
  Fault fault;
  GradientReport gradients;
};

// Scratch that suffices to measure gradients of any length; SumSquares checks it.
inline constexpr size_t kSumSquaresScratchBytes = size_t{8} << 10;

}  // namespace gyre
