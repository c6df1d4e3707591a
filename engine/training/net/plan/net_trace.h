// net_trace.h: from an inferred net to the access trace of one iteration, and which trace state is
// which tensor.  A pure function; the memory plan and the binding of views both start here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/training/net/infer/net_spec.h"
#include "engine/training/net/plan/gradient_sums.h"
#include "engine/training/net/plan/optimizer_slots.h"
#include "memory/trace/access_trace.h"

namespace gyre {

// Where a training net keeps what one of its layers carries from step to step: its rows of each
// batch of a step, one batch after another.
struct CarriedHome {
  std::string name;
  size_t bytes = 0;
};

// Of a TouchedTable, from its layer's backward until the update: its indices of a step's batches;
// scratch, an I32 a row of the table; the rows that the optimizer finds, of all ranks; and of
// several ranks the rows of this one (F64) and, where they are sent, the values of all ranks'.
struct TableStates {
  int kept = -1, first = -1, rows = -1, names = -1, values = -1;
};

struct NetTrace {
  AccessTrace trace;
  // Indices into trace.states; -1: there is no such state.
  // "step", whose views lie in this order: what pixels stand for, in the compute type, for each
  // input that they come ahead for; the StepScalars; the metrics, by node; the records, by node;
  // the sums of squares of each bucket's gradients; scratch to compute them with; where a step has
  // several batches, the BatchMean.
  int step = -1, step_scalars = -1, sums = -1, scratch = -1, batch_mean = -1;
  int loss_scale = -1;  // LossScaleState, where it is dynamic
  std::vector<int> pixel_values, metrics, records;
  // A batch on its way, as it lies in host memory (engine/data/batches/batch.h); views of one
  // state.
  struct Ahead {
    int whole = -1;
    std::vector<int> inputs;  // by net input
  };
  std::vector<Ahead> ahead;             // by lane; empty if batches are copied straight
  std::vector<int> parameters;          // by parameter
  std::vector<std::vector<int>> slots;  // by bucket, then kind, then tile; then its master's tiles
  // By bucket, of several batches' gradients where their mean is in the bucket, and that in the
  // device arena; else -1 or none.
  std::vector<int> sums_of_batches;
  // By bucket: where the optimizer finds the ranks' sum of one that is sent (NetPlan), or the
  // parameters what a server's owners have made of it; else -1.
  std::vector<int> summed;
  std::vector<int> homes;           // by home
  std::vector<TableStates> tables;  // by table
  // By CarriedStates: what the layers are bound to.  A home where a step is one batch; where it is
  // several, the homes lie apart, and a batch's rows are copied from them and back.
  std::vector<int> carried;
  bool homes_apart = false;
  std::vector<int> values;  // by value
  GradientStates gradients;
  // By node, then state: where the layer finds it in forward (inputs, outputs and parameters
  // resolve to the above), in backward and, where NetNode::recomputed, when it runs again: the
  // same, but for scratch, which keeps nothing between them, and for values that are made again.
  std::vector<std::vector<int>> forward_states, backward_states, recompute_states;
  std::vector<int> recomputed;  // by value: where it lies when it has been made again
  // By node: those that run forward again before its backward, which reads what they make.
  std::vector<std::vector<int>> recomputed_before;
  // Indices into trace.steps, which run in order; -1: it has none.
  std::vector<std::vector<int>> forward_steps, backward_steps;  // by node, then piece
  std::vector<int> recompute_steps;                             // by node
  std::vector<int> carry_steps;                                 // by CarriedStates
  // By bucket.  Of one rank, and of one that gates alone, a bucket is measured in its ready step,
  // which comes as soon as backward has completed it; where updates wait for nothing else, its
  // update is the next: of each tile.  One that is sent leaves in its ready step or, of a rank that
  // gates alone, at the iteration's end.
  std::vector<int> ready_steps, leave_steps;
  std::vector<std::vector<int>> update_steps;
  // With a parameter server, in place of updates, in a step's first iteration: ahead of the first
  // layer that reads its parameters.
  std::vector<int> take_steps;
  // By bucket: those whose updates come behind its ready step; and those of the iteration's end.
  std::vector<std::vector<int>> updates_behind;
  std::vector<int> last_updates;
  int upload_step = -1, loss_step = -1, report_step = -1;
};

// What a trace follows from.
struct TraceInput {
  const NetSpec& net;
  const ParameterSet& parameters;
  const OptimizerSlots& slots;           // of the net that trains
  std::span<const CarriedHome> homes;    // likewise
  const GradientOrder& order;            // empty for a net that does not train
  std::span<const TouchedTable> tables;  // likewise
  const Feed& feed;
  std::span<const int64_t> sent = {};  // NetPlan's
  bool updates = true;  // false: an iteration that only adds to the gradients of a step
};

// Persistent states come first, those that nets of a run share before others, and the shared ones
// depend only on `parameters`, `slots`, `homes` and the run's shape, so all nets agree on their
// offsets.
NetTrace TraceNet(const TraceInput& input);

}  // namespace gyre
