// gradient_sums.h: the states of a net's gradients, and the sums that make them.  A sum is over the
// nodes that read a value, those that use a parameter, or the batches of a step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/training/net/plan/gradient_order.h"
#include "memory/trace/access_trace.h"

namespace gyre {

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

struct BucketStorage {
  Arena arena = Arena::kDevice;
  int view_of = -1;  // the state of which gradients are views; -1: they are contiguous
};

// Adds the states of a training net's gradients to `trace`.  `places` is by bucket.
GradientStates AddGradients(const NetSpec& net, const ParameterSet& parameters,
                            const GradientOrder& order, std::span<const BucketStorage> places,
                            AccessTrace& trace);

}  // namespace gyre
