// host_steps.h: finds the steps that can run on the host, and searches for those that are worth it.
// A pure function.  Private to memory.
#pragma once

#include <functional>
#include <vector>

#include "memory/trace/access_trace.h"
#include "memory/trace/trace_blocks.h"

namespace gyre {

// Steps that may run on the host and save copies by it.  Sorted by bytes saved per host byte, then
// by step.  `resident` says of each block whether it must stay on the device.
std::vector<int> HostCandidates(const AccessTrace& trace, const TraceBlocks& cut,
                                const std::vector<std::vector<BlockTouch>>& touches,
                                const std::vector<bool>& resident);

// Tries sets of the first n candidates.  `seconds` gets by step whether it runs on the host, and
// returns the seconds of an iteration.  `without_any` is its result for no step.
void ChooseHostSteps(const AccessTrace& trace, const std::vector<int>& candidates,
                     double without_any, const std::function<double(std::vector<bool>)>& seconds);

}  // namespace gyre
