// step_choices.h: which steps run on the host, and which run again so that nobody stores their
// values until the next read.  Each search takes so many of its best candidates.  Pure functions.
// Private to memory.
#pragma once

#include <functional>
#include <vector>

#include "memory/trace/trace_blocks.h"

namespace gyre {

// Longer iterations get one try where others get many, so that 10,000 steps are planned in seconds.
inline constexpr size_t kManySteps = 2000;

// Both searches predict an iteration by `seconds`.  `without_any` is its result for no such step.

// Tries sets of the first n steps that save copies by running on the host.  `seconds` gets by step
// whether it runs there.  `resident` says of each block whether it must stay on the device.
void ChooseHostSteps(const AccessTrace& trace, const TraceBlocks& cut,
                     const std::vector<std::vector<BlockTouch>>& touches,
                     const std::vector<bool>& resident, double without_any,
                     const std::function<double(std::vector<bool>)>& seconds);

// Tries orders: all steps of the trace, and some again after the longest pause between readers of
// their values.  First the n steps that save most bytes for their time, then one more or fewer.
void ChooseOrder(const AccessTrace& trace, const TraceBlocks& cut,
                 const std::vector<std::vector<BlockTouch>>& touches, double without_any,
                 const std::function<double(std::vector<int>)>& seconds);

}  // namespace gyre
