// net_trace.h: what one iteration of a net does, step by step, and the states that it touches.  A
// pure function, from which the memory plan and the binding of tensors start.  The trace says what
// each step touches, and the program what it does: NetTrace::program[i] is trace.steps[i].  The
// planner alone knows modes, such as a sharded optimizer: it emits other instructions.  One loop
// executes them (Net::Run).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/math.h"
#include "engine/training/net/infer/net_spec.h"
#include "engine/training/net/plan/gradient_order.h"
#include "memory/trace/access_trace.h"

namespace gyre {

enum class InstructionKind : uint8_t {
  // Of the net.  `of` is a node, and `piece` a slice of it.
  kForward,
  kForwardAgain,  // its outputs, for backward
  kBackward,
  kCarry,       // of: index into NetSpec::carried.  Its rows go on to the next batch.
  kSumTerms,    // of: NetTrace::gradient_sums' index
  kSeedLosses,  // the gradients of losses

  // Of a step.  `of` is a bucket, where one is told.
  kUpload,           // the step's scalars and its batch come to the device
  kAwait,            // blocks until the values that the next layer reads have come
  kMeasure,          // the sum of squares of its gradients
  kScale,            // clips its gradients, or marks them as not to be used, before they are sent
  kBegin,            // its exchange begins: a sum over ranks, or sending it to a server's owners
  kPoll,             // applies what has come of all exchanges
  kFinish,           // blocks until its sum, or this rank's shard of it, has come
  kMeasureGradient,  // the pieces that a tile has of whole gradients' norms, for the log
  kMeasureChange,    // the pieces that a tile has of whole parameters' norms
  kUpdate,           // piece: a tile
  kGather,           // this rank's shard of new values begins to go to all ranks
  kReceive,          // blocks until all ranks' new values of it have come, and takes them
  kTakeValues,       // copies values that have come to the parameters
  kAddNorms,         // tells all ranks the sums of squares of all shards
  kAddChanges,       // tells all ranks the pieces of all shards
  kUploadNorms,
  kGate,   // decides whether to clip or skip
  kClock,  // ends a server's step.  If gated, owners then update as the gate says
  kReport,
};

struct Instruction {
  InstructionKind kind;
  int of = -1;
  int piece = 0;
};

inline bool IsOfNet(InstructionKind kind) { return kind <= InstructionKind::kSeedLosses; }

// A flat array for each bucket and kind, such as momentum, over the range that this rank updates.
// Arrays are of AccumulateDType.  A bucket of 16 bits also has an array of masters.
struct OptimizerSlots {
  struct SlotBucket {
    int64_t elements = 0;
    DType dtype = DType::kF32;  // the bucket's
    // Of a tile, a state that is updated in a step of its own.  The last may be smaller.  A tile is
    // whole pages, so arrays that do not page are contiguous.
    int64_t tile_elements = elements;
  };
  std::vector<std::string> names = {};  // of the kinds
  std::vector<SlotBucket> buckets = {};

  DType dtype(size_t bucket) const { return AccumulateDType(buckets[bucket].dtype); }
  bool has_master(size_t bucket) const { return dtype(bucket) != buckets[bucket].dtype; }
  int kinds() const { return static_cast<int>(names.size()); }
  int arrays(size_t bucket) const { return kinds() + (has_master(bucket) ? 1 : 0); }
  size_t bytes(size_t bucket) const {  // of one kind
    return static_cast<size_t>(buckets[bucket].elements) * SizeOf(dtype(bucket));
  }
  int tiles(size_t bucket) const {
    const auto& [elements, dtype, of_tile] = buckets[bucket];
    return elements == 0 ? 1 : static_cast<int>(CeilDiv(elements, of_tile));
  }
  ElementRange tile(size_t bucket, int index) const {
    const auto& [elements, dtype, of_tile] = buckets[bucket];
    const int64_t begin = index * of_tile;
    return {begin, std::min(elements, begin + of_tile)};
  }
  // For people, after the bucket's name.
  std::string tile_name(size_t bucket, int index) const {
    return tiles(bucket) == 1 ? "" : absl::StrCat(", part ", index + 1, "/", tiles(bucket));
  }
  // Bytes that an update of `count` elements reads and writes.  It reads gradients, and values that
  // have no master.  It writes values, and reads and writes the arrays.
  size_t update_bytes(size_t bucket, int64_t count) const {
    const size_t values = (has_master(bucket) ? 2 : 3) * SizeOf(buckets[bucket].dtype);
    const size_t own = 2 * static_cast<size_t>(arrays(bucket)) * SizeOf(dtype(bucket));
    return static_cast<size_t>(count) * (values + own);
  }
};

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

// The table whose gradient is the bucket, or null.
const TouchedTable* TableOf(const TraceInput& input, size_t bucket);

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

}  // namespace gyre
