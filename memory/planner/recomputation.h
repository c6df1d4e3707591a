// recomputation.h: finds steps that can run again, so that nobody stores their values until the
// next read, and searches for those that are worth it.  A pure function.  Private to memory.
//
// A value is the result of a step's write to a byte range.  Views and groups cut the ranges.  A
// step may run again if two conditions hold.  Each value that it reads is there again, or is made
// again before it.  Each value that it overwrites is dead, or is there again when all reruns end.
#pragma once

#include <functional>
#include <vector>

#include "memory/trace/trace_blocks.h"

namespace gyre {

// Tries orders: all steps of the trace, and some again after the longest pause between readers of
// their values.  First the n steps that save most bytes for their time, then one more or fewer.
// `seconds` predicts an iteration in an order.  `without_any` is its result for the trace's order.
void ChooseOrder(const AccessTrace& trace, const TraceBlocks& cut,
                 const std::vector<std::vector<BlockTouch>>& touches, double without_any,
                 const std::function<double(std::vector<int>)>& seconds);

}  // namespace gyre
