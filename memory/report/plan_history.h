// plan_history.h: what an iteration is expected to hold in device memory when, and what runs when:
// of a plan with one place for each state, or of one that pages.  Plain data, for the picture
// (plan_picture.h).  Pure functions.
#pragma once

#include <string>
#include <vector>

#include "memory/planner/paging_plan.h"

namespace gyre {

// What people tell states by.
struct StateKinds {
  std::vector<std::string> names;  // "parameters", ...
  std::vector<int> of;             // by state of the trace; a view has its root's
};

struct PlanHistory {
  std::vector<std::string> kinds = {};
  struct Allocation {
    int kind = 0;
    size_t bytes = 0;
    double begin = 0, end = 0;  // seconds
  };
  std::vector<Allocation> allocations = {};
  struct Span {
    std::string name;
    double begin = 0, end = 0;  // seconds; begin is not negative
    size_t bytes = 0;           // that are copied
    bool again = false;         // a step that has run before
  };
  // Each in order, none over another.
  std::vector<Span> steps = {}, fetches = {}, write_backs = {}, host_steps = {};
  double seconds = 0;          // of the iteration
  double stalled_seconds = 0;  // of these no step runs
};

// Preconditions: the plan is of the trace, as are the kinds; the same costs.
PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const MemoryPlan& plan);
PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const PagingPlan& plan,
                      const PagingCosts& costs);

}  // namespace gyre
