// gradient_sums.h: the states of a net's gradients, and the sums that make them.  A sum is over the
// nodes that read a value, those that use a parameter, or the batches of a step.
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/dtype.h"

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

}  // namespace gyre
