// step_scalars.h: the scalars of a step in device memory, both its inputs and its results, and
// norms of whole parameters.  Scalars are the plan's state "step" (net/plan/net_trace.h) in the
// net's arena, ahead of the metrics.  So one copy brings them up, and another takes fault, report
// and metrics down.
#pragma once

#include <array>
#include <cmath>

#include "layers/interface/layer.h"

namespace gyre {

// The most training iterations in flight.  Each has a lane with input and output memory of its own.
inline constexpr int kMostStepsInFlight = 2;

// The optimizer slot of the weights' averages (OptimizerConfig.ema).
inline constexpr char kAverageSlot[] = "average";

// The most groups of parameters that a net's text may make (kMostTrainableFrom).
inline constexpr int kMostGroups = 16;

// Groups of parameters, which begin to train at steps of their own (StateSpec::trainable_from).
struct UpdateGroups {
  int count = 1;
  double first_update[kMostGroups] = {};  // updates before a group's first, without those skipped
};

struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;               // factor of each gradient
  double decay[2] = {0, 0};                // of Adam's moments; SetNumber uses it
  UpdateGroups groups = {};                // likewise
  double correction[kMostGroups][2] = {};  // by group: of the bias of moments that start at 0
  bool first[kMostGroups] = {};            // by group: no update before it changed anything
  bool skip = false;                       // the update changes nothing
  bool logs_norms = false;                 // of the step's gradients

  // For update number `update`, from 0, without those skipped.  In double, because 1 - decay^t for
  // small t would lose half its digits in float.
  HOST_DEVICE void SetNumber(double update) {
    for (int g = 0; g < groups.count; ++g) {
      const double own = update - groups.first_update[g];
      for (int k = 0; k < 2; ++k) correction[g][k] = 1 - std::pow(decay[k], own + 1);
      first[g] = own == 0;
    }
  }
};

// The state of a dynamic loss scale, on the device and in checkpoints.
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;  // consecutive, at this scale
  int64_t skipped = 0;     // total steps
};

// The largest dynamic loss scale.  It and its inverse are within F32.
inline constexpr double kMostLossScale = 0x1p100;
// The least useful dynamic loss scale, the smallest number of F16.
inline constexpr double kLeastLossScale = 0x1p-24;

// Weights that add a batch's gradients to the mean over the step's batches so far.
struct BatchMean {
  double counted = 0;  // the number that losses' means are over, if only the data tell; else 0
  double kept = 0;     // weight of the mean so far; 0: there is none, memory is undefined
  double added = 1;    // weight of the batch's
};

// The gate's results.
struct GradientReport {
  double norm = 0;            // of all gradients, before clipping
  int64_t bad_bucket = -1;    // the first with a non-finite sum of squares
  LossScaleState loss_scale;  // if dynamic: after the step
};

struct StepScalars {
  BatchPosition position;
  bool first_batch = true;                                // of the step
  double loss_scale = 1;                                  // unless it is dynamic
  std::array<UpdateScalars, kMostStepsInFlight> updates;  // by lane: the other may be in flight
  Fault fault;
  GradientReport gradients;
};

// Scratch for the norm of gradients of any length.  SumSquares checks it.
inline constexpr size_t kSumSquaresScratchBytes = size_t{8} << 10;

// Buckets, shards and tiles cut parameters.  So a parameter is measured in pieces that do not
// depend on how it is cut.  Whoever updates an element adds up all pieces, in one order.  Sums of
// squares over the elements of a piece:
struct PieceSquares {
  using Component = double;
  double value, change;  // of the parameter, and of what moves it
  HOST_DEVICE PieceSquares operator+(PieceSquares other) const {
    return {value + other.value, change + other.change};
  }
};

// Where an optimizer finds the norms of the whole parameter of a view.  All pointers are to device
// memory.
struct ParameterNorms {
  // To measure.  The view's elements are cells of rows of `columns` cells, one after another, from
  // cell `before` on.  Each row is a piece, and `own` has the first row's squares.
  int64_t before = 0, columns = 0;
  PieceSquares* own = nullptr;
  // To update: all pieces of the parameter, and a number in which their result is kept.
  const PieceSquares* all = nullptr;
  int64_t count = 0;
  double* ratio = nullptr;
  double* logged = nullptr;  // the first row's square of the gradient, for the log
};

}  // namespace gyre
