// net_trace.h: the access trace of one iteration of a net, and the state of each tensor in it.  A
// pure function, from which the memory plan and the binding of tensors start.
#pragma once

#include <string>
#include <vector>

#include "engine/training/net/infer/net_spec.h"
#include "engine/training/net/plan/gradient_order.h"
#include "engine/training/net/plan/instruction.h"
#include "engine/training/net/plan/optimizer_slots.h"
#include "engine/training/net/plan/parameter_pieces.h"
#include "memory/trace/access_trace.h"

namespace gyre {

// States of a TouchedTable, in use from its layer's backward to its update.
//   kept    indices of a step's batches, I32
//   first   scratch, an I32 a row of the table
//   rows    all ranks' touched rows, I32, for the optimizer
//   names   this rank's touched rows, F64, if there are several ranks
//   values  all ranks' values of touched rows, if they are sent
struct TableStates {
  int kept = -1, first = -1, rows = -1, names = -1, values = -1;
};

// total <- the sum of the terms in order, elementwise.  The total may be the first term.  If a step
// has several batches, a parameter's terms are one batch's.  They are added to `mean`, the mean of
// all batches so far, which is the total or is rounded to it.
struct GradientSum {
  std::string name;  // for people
  int total = -1;
  int mean = -1;  // of AccumulateDType; -1: one batch
  std::vector<int> terms;
  DType dtype = DType::kF32;
  int slice = 0;  // slice of the node's backward that it follows
};

// Indices into the trace's states, or -1.
struct GradientStates {
  std::vector<int> parameters;  // by parameter: summed over ranks, read by the optimizer
  // By parameter: the mean over a step's batches, if there are several.  It equals `parameters`,
  // but gradients of 16 bits have a mean in F32.
  std::vector<int> means;
  std::vector<int> values;  // by value
  // By node, then state: the gradient, or a term of it, that backward reads or assigns.
  std::vector<std::vector<int>> nodes;
  // By node: sums of its outputs' gradients before its backward, of its parameters' after it.
  std::vector<std::vector<GradientSum>> before, after;
};

struct NetTrace {
  AccessTrace trace;
  // Members are indices into trace.states, or -1.  The views of "step", in this order:
  //   pixel_values      by input: the value of each byte, in its type, if batches come ahead
  //   step_scalars      the StepScalars
  //   metrics, records  by node
  //   sums, scratch     the sum of squares of each bucket's gradients, and scratch to compute it
  //   norms             of NormsBytes, if parameters or gradients are measured
  //   batch_mean        the BatchMean, if a step has several batches
  int step = -1, step_scalars = -1, sums = -1, scratch = -1, norms = -1, batch_mean = -1;
  int loss_scale = -1;  // LossScaleState, if it is dynamic
  std::vector<int> pixel_values, metrics, records;
  // A batch in transit, as in host memory (engine/data/batches/batch.h).  `whole` holds all inputs.
  struct Ahead {
    int whole = -1;
    std::vector<int> inputs;  // by net input
  };
  std::vector<Ahead> ahead;         // by lane; empty if batches are copied straight to inputs
  std::vector<int> parameters;      // by parameter
  std::vector<int> homes;           // by home
  std::vector<TableStates> tables;  // by table
  // By NetSpec::carried: the layers' state.  It is the home if a training step has one batch.  With
  // several, homes are apart, and a batch's rows are copied from and to them.
  std::vector<int> carried;
  bool homes_apart = false;
  std::vector<int> values;  // by value
  GradientStates gradients;
  // By node, then state, in forward, backward and recomputation.  Only scratch and recomputed
  // values have a state for each of them.
  std::vector<std::vector<int>> forward_states, backward_states, recompute_states;
  std::vector<int> recomputed;  // by value: the state of its recomputation
  // By node: the nodes that are recomputed before its backward, which reads their outputs.
  std::vector<std::vector<int>> recomputed_before;
  std::vector<GradientSum> gradient_sums;
  std::vector<Instruction> program;  // by step of the trace
  static constexpr int kUploadStep = 0;
  // What takes a bucket's exchange in where it has come, at kAwait, kPoll or kReceive, in order.
  std::vector<InstructionKind> on_arrival;
  struct TracedBucket {
    std::vector<int> slots = {};  // by kind, then tile; masters last
    int sum_of_batches = -1;      // their mean, if the bucket holds it in the device arena
    int summed = -1;              // of a sent one (NetPlan): the ranks' sum, or a server's values
    // The steps at which it has an address, or -1: its gradients are measured or sent, its first
    // tile is updated, its new values are taken.
    int leaves = -1, update = -1, values = -1;
  };
  std::vector<TracedBucket> buckets;
};

// From which a trace follows.
struct TraceInput {
  NetSpec spec;
  Feed feed;
  std::vector<TouchedTable> tables;  // of a training net, as order and pieces
  GradientOrder order;
  ParameterPieces pieces;
  OptimizerSlots slots;  // the training net's
  // Of the training net's carried states, with this rank's rows for each batch of a step, in order.
  std::vector<TraceState> homes;
  // By bucket of a training net: its elements if it is sent, else 0.  Empty unless several ranks
  // page.  A sent bucket leaves the device arena, and returns summed or as new parameters.  Other
  // buckets stay in the communication arena.
  std::vector<int64_t> sent;
  bool updates = true;  // false: the iteration only accumulates

  bool sends(size_t bucket) const { return !sent.empty() && sent[bucket] > 0; }
};

// The states that nets of a run share come first.  They depend only on `parameters`, `slots`,
// `homes` and the run's shape, so all nets agree on their offsets.
NetTrace TraceNet(const TraceInput& input, const ParameterSet& parameters);
// Its beginning.  Adds the states that outlive an iteration, or are used outside of its steps:
// parameters, optimizer slots, gradients over batches, carried rows, batches ahead, tables' states
// and the step's block.  AddGradients adds the only other persistent ones.
void AddLastingStates(const TraceInput& input, const ParameterSet& parameters, NetTrace& trace);
// The states of a training net's gradients.
void AddGradients(const TraceInput& input, const ParameterSet& parameters, NetTrace& trace);
// Its end.  Adds the steps, and what they do, to a trace that has all states.
void AddProgram(const TraceInput& input, NetTrace& trace);

// Cuts updates into tiles, so that layers alone set the least device memory.  A bucket has the
// fewest tiles, up to kMostTiles, for which an update touches no more than the largest other step.
// It has kMostTiles if its gradient and parameters alone exceed that.  A table's bucket is not cut,
// as its update visits all rows.  A tile is of whole pieces of parameters.  Precondition: the trace
// is of a training net of one rank, with uncut updates.
inline constexpr int kMostTiles = 32;
void CutUpdates(const NetTrace& trace, TraceInput& input);

}  // namespace gyre
