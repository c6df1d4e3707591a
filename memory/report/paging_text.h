// paging_text.h: tables of a plan of paging for people, with its blocks and its predicted times.
// Pure functions.
#pragma once

#include <string>

#include "memory/planner/paging_plan.h"

namespace gyre {

// A table of blocks by location, then of the largest blocks with their bytes and their stays, by
// position.  Precondition: the plan is of this trace.
std::string DescribePlaces(const AccessTrace& trace, const PagingPlan& plan);

// The predicted time of an iteration, paged and all in memory, its waits, its copies and its steps
// that run on the host or again.
std::string DescribeTimes(const AccessTrace& trace, const PagingPlan& plan,
                          const PagingCosts& costs);

// The order of steps and the stays of blocks with 16-bit copies.  Plans of one trace with equal
// texts give equal bits.  "" if nothing is rounded.
std::string RoundingText(const PagingPlan& plan);

// Seconds of all steps, each once, without waits.
double WorkSeconds(const AccessTrace& trace);

}  // namespace gyre
