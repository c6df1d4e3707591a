// lasting_states.h: the states of a trace that outlive its iteration, or may be used outside of its
// steps: parameters and the optimizer's, sums of gradients over batches, what is carried, batches
// on their way in, what goes with tables, the step's block.  Private to net.
#pragma once

#include "engine/training/net/plan/net_trace.h"

namespace gyre {

// The first states of a trace, all that are persistent but for gradients in the communication
// arena.
void AddLastingStates(const TraceInput& input, NetTrace& trace);

}  // namespace gyre
