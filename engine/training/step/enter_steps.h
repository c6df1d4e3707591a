// enter_steps.h: tells a net's pager which step comes next.
#pragma once

#include <chrono>
#include <vector>

#include "engine/training/net/run/net.h"
#include "engine/training/step/step_graph.h"
#include "memory/pager/pager.h"

namespace gyre {

// Returns a function for one iteration.  Call it with each step before its work, and with their
// number at the end.  A null pager makes it do nothing.  Copies of an iteration that cannot be
// captured whole end stretches.  All arguments outlive the result.
inline Net::Enter EnterSteps(Pager* pager, Stream& stream, const StepGraph::Between& between) {
  if (pager == nullptr) return [](int) { return absl::OkStatus(); };
  return [pager, &stream, &between, at = -1](int step) mutable {
    const int from = at;
    at = step;
    if (!pager->advances(from, step)) return absl::OkStatus();
    if (pager->captured_whole()) return pager->Advance(from, step, stream);
    return between([pager, &stream, from, step] { return pager->Advance(from, step, stream); });
  };
}

// The same, but each step begins after the previous one is over and its own copies are complete.
// Stores each step's duration in `seconds`, by position.
inline Net::Enter TimeSteps(Pager& pager, Stream& stream, std::vector<double>& seconds) {
  using Clock = std::chrono::steady_clock;
  return [&pager, &stream, &seconds, at = -1,
          begun = Clock::time_point()](int position) mutable -> absl::Status {
    RETURN_IF_ERROR(stream.Synchronize());
    if (at >= 0) seconds[at] = std::chrono::duration<double>(Clock::now() - begun).count();
    RETURN_IF_ERROR(pager.Advance(at, position, stream));
    at = position;
    RETURN_IF_ERROR(stream.Synchronize());
    begun = Clock::now();
    return absl::OkStatus();
  };
}

}  // namespace gyre
