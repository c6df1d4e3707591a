// lasting_states.h: adds states that outlive an iteration, or are used outside of its steps.
// They are parameters, optimizer slots, gradients over batches, carried rows, batches ahead,
// tables' states and the step's block.  Private to net.
#pragma once

#include "engine/training/net/plan/net_trace.h"

namespace gyre {

// Adds the first states of a trace.  AddGradients adds the only other persistent ones.
void AddLastingStates(const TraceInput& input, NetTrace& trace);

}  // namespace gyre
