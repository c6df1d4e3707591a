// optimal_plan.h: how fast a plan of paging could be, by branch and bound: for small traces, to
// judge the planner by.
//
// It tries which blocks stay on the device between two uses, which persistent ones stay for good,
// and in what order copies and steps claim memory.  Memory is counted by bytes: where there is
// room anywhere a block may lie in pieces.  So no plan is expected to be faster, and where nothing
// packs so well, none is as fast.  Copies run in the planner's order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/planner/paging_plan.h"
#include "memory/trace/access_trace.h"

namespace gyre {

struct OptimalPlan {
  double seconds = 0;   // of an iteration, as PredictTimes has it
  bool proven = false;  // the search was not cut short
};

// seconds: of a plan that is known; the result is no slower.  It gives up after `most_nodes`.
// Preconditions: states are device roots without groups, of a multiple of kPlanAlignment bytes,
// none is pinned, and no step runs again.
OptimalPlan FindOptimalPlan(const AccessTrace& trace, const PagingCosts& costs,
                            size_t capacity_bytes, double seconds, int64_t most_nodes);

}  // namespace gyre
