// plan_picture.h: predicts an iteration's device memory, steps and copies over time, for a resident
// or a paged plan, and draws them.  Device memory is drawn by kind, with steps and copies under it.
// Pure functions.  The picture needs no other file.
#pragma once

#include <string>
#include <vector>

#include "memory/planner/paging_plan.h"

namespace gyre {

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
    size_t bytes = 0;           // copied, or moved by a host step
    bool again = false;         // the step has run before
  };
  // Each in order, without overlap.
  std::vector<Span> steps = {}, fetches = {}, write_backs = {}, host_steps = {};
  double seconds = 0;          // of the iteration
  double stalled_seconds = 0;  // of these no step runs
};

// Precondition: plan and kinds are of the trace, and the plan was made with these costs.
PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const MemoryPlan& plan);
PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const PagingPlan& plan,
                      const PagingCosts& costs);

// An SVG image, with a line at capacity_bytes.  Spans below half a pixel are drawn together.
std::string PlanPicture(const PlanHistory& history, size_t capacity_bytes,
                        const std::string& title);

// The image in a page of HTML, with preformatted text below it, such as tables.
std::string PlanPage(const PlanHistory& history, size_t capacity_bytes, const std::string& title,
                     const std::string& below);

}  // namespace gyre
