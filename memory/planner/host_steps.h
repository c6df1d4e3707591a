// host_steps.h: which steps of a trace can run on the host, and the search for those that are worth
// it.  A pure function.  Private to memory.
#pragma once

#include <functional>
#include <vector>

#include "memory/trace/access_trace.h"
#include "memory/trace/trace_blocks.h"

namespace gyre {

// Steps that may run on the host and save copies by it; those first that save most bytes for what
// they move there, of equal ones those that run first.  resident: by block: it is on the device for
// good, without a choice.
std::vector<int> HostCandidates(const AccessTrace& trace, const TraceBlocks& cut,
                                const std::vector<std::vector<BlockTouch>>& touches,
                                const std::vector<bool>& resident);

// Tries sets: so many of the candidates, from the first on.  seconds: that an iteration takes with
// one (by step: whether it runs on the host); without_any: with none.
void ChooseHostSteps(const AccessTrace& trace, const std::vector<int>& candidates,
                     double without_any, const std::function<double(std::vector<bool>)>& seconds);

}  // namespace gyre
