// gradient_sums.h: where the gradients of a net lie, and what the net adds up to make them: of a
// value that several nodes read, of a parameter that several use, of the batches of one step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/training/net/plan/gradient_order.h"
#include "memory/trace/access_trace.h"

namespace gyre {

// total <- the sum of the terms in order, elementwise; the total may be the first of them.  Of a
// parameter where a step has several batches: the terms are one batch's, the mean of all batches so
// far is kept in `mean`, which they are added to, and which the total is, or takes rounded.
struct GradientSum {
  std::string name;  // for people
  int total = -1;
  int mean = -1;  // of AccumulateDType
  std::vector<int> terms;
  DType dtype = DType::kF32;
  int piece = 0;  // of a node's backward that it comes after
  int step = -1;  // of the trace
};

// Indices into the trace's states; -1: there is none.
struct GradientStates {
  std::vector<int> parameters;  // by parameter: what ranks sum and the optimizer reads
  // By parameter, where a step has several batches: the mean over them.  That is `parameters`, but
  // of gradients of 16 bits has F32 and a memory of its own.
  std::vector<int> means;
  std::vector<int> values;  // by value
  // By node, then state: what its backward reads (outputs) or assigns, a term of a sum or the
  // whole.
  std::vector<std::vector<int>> nodes;
  // By node: those due before its backward, of its outputs, and after it, of its parameters.
  std::vector<std::vector<GradientSum>> before, after;
};

// Of a bucket's gradients.
struct BucketStorage {
  Arena arena = Arena::kDevice;
  int view_of = -1;  // the state that they are to be views of; -1: they lie side by side
};

// Adds the states of the gradients of a training net to `trace`.  places: by bucket.
GradientStates AddGradients(const NetSpec& net, const ParameterSet& parameters,
                            const GradientOrder& order, std::span<const BucketStorage> places,
                            AccessTrace& trace);

}  // namespace gyre
