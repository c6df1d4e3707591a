// enter_steps.h: a net's steps, told to its pager.
#pragma once

#include "engine/training/net/net.h"
#include "engine/training/step/step_graph.h"
#include "memory/pager.h"

namespace gyre {

// For one iteration: to be called with each step before its work, and with their number at the end.
// pager null: does nothing.  Waits and records events only within `between`.  All arguments outlive
// the result.
inline Net::Enter EnterSteps(Pager* pager, Stream& stream, const StepGraph::Between& between) {
  if (pager == nullptr) return [](int) { return absl::OkStatus(); };
  return [pager, &stream, &between, at = -1](int step) mutable {
    const int from = at;
    at = step;
    if (!pager->advances(from, step)) return absl::OkStatus();
    return between([pager, &stream, from, step] { return pager->Advance(from, step, stream); });
  };
}

}  // namespace gyre
