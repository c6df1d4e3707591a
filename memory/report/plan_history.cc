#include "memory/report/plan_history.h"

#include <algorithm>

#include "memory/planner/paging_schedule.h"
#include "memory/trace/trace_blocks.h"

namespace gyre {
namespace {

// By state: whether it is no view and lies on the device, or its arena, for good.
std::vector<bool> AlwaysThere(const AccessTrace& trace) {
  std::vector<bool> there;
  for (const TraceState& state : trace.states) {
    const bool lasts = state.persistent || state.arena == Arena::kCommunication;
    there.push_back(lasts && state.view_of < 0);
  }
  return there;
}

}  // namespace

PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const MemoryPlan& plan) {
  PlanHistory history = {.kinds = kinds.names};
  for (const TraceStep& step : trace.steps) {
    const double begin = history.seconds;
    history.seconds += step.seconds;
    history.steps.push_back({.name = step.name, .begin = begin, .end = history.seconds});
  }
  const std::vector<bool> always = AlwaysThere(trace);
  for (size_t i = 0; i < trace.states.size(); ++i) {
    const TraceState& state = trace.states[i];
    const auto [arena, offset, first, last] = plan.placements[i];
    if (state.view_of >= 0 || (!always[i] && last < 0)) continue;
    history.allocations.push_back({.kind = kinds.of[i],
                                   .bytes = state.bytes,
                                   .begin = always[i] ? 0 : history.steps[first].begin,
                                   .end = always[i] ? history.seconds : history.steps[last].end});
  }
  return history;
}

PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const PagingPlan& plan,
                      const PagingCosts& costs) {
  const PagingTimes times = PredictTimes(trace, plan, SchedulePaging(plan), costs);
  PlanHistory history = {
      .kinds = kinds.names, .seconds = times.seconds, .stalled_seconds = times.stalled_seconds};
  std::vector<bool> ran(trace.steps.size(), false);
  size_t next_on_host = 0;
  for (size_t position = 0; position < plan.order.size(); ++position) {
    const int step = plan.order[position];
    if (next_on_host < plan.host_steps.size() &&
        plan.host_steps[next_on_host].position == static_cast<int>(position)) {
      ++next_on_host;
      continue;
    }
    history.steps.push_back({.name = trace.steps[step].name,
                             .begin = times.steps[position].begin,
                             .end = times.steps[position].end,
                             .again = ran[step]});
    ran[step] = true;
  }
  for (const auto& [index, begin, end] : times.host_steps) {
    if (begin >= history.seconds) continue;
    const TraceStep& step = trace.steps[plan.order[plan.host_steps[index].position]];
    history.host_steps.push_back({.name = step.name,
                                  .begin = std::max(0.0, begin),
                                  .end = std::min(history.seconds, end),
                                  .bytes = step.host_bytes});
  }
  const std::vector<bool> touched = TouchedRoots(trace);
  const std::vector<bool> always = AlwaysThere(trace);
  for (size_t i = 0; i < trace.states.size(); ++i) {
    const bool here = plan.states[i].block < 0 && trace.states[i].view_of < 0;
    if (!here || (!always[i] && !touched[i])) continue;
    history.allocations.push_back(
        {.kind = kinds.of[i], .bytes = trace.states[i].bytes, .end = history.seconds});
  }
  const auto name_of = [&](const PagedBlock& block) {
    const std::string& first = trace.states[block.states.front()].name;
    return block.states.size() == 1 ? first : first + " and others";
  };
  const auto add = [&](const PagingTimes::WorkSpan& copy, std::vector<PlanHistory::Span>& to) {
    const PagedBlock& block = plan.blocks[plan.stays[copy.index].block];
    if (copy.begin >= history.seconds) return;
    to.push_back({.name = name_of(block),
                  .begin = std::max(0.0, copy.begin),
                  .end = std::min(history.seconds, copy.end),
                  .bytes = block.page_bytes});
  };
  struct There {
    double begin, end;
  };
  std::vector<There> there;  // by stay
  for (const Stay& stay : plan.stays) {
    there.push_back({times.steps[stay.first_step].begin, times.steps[stay.last_step].end});
  }
  const auto hold = [&](int stay, double begin, double end) {
    const PagedBlock& block = plan.blocks[plan.stays[stay].block];
    history.allocations.push_back({.kind = kinds.of[block.states.front()],
                                   .bytes = block.bytes,
                                   .begin = std::max(0.0, begin),
                                   .end = std::min(history.seconds, end)});
  };
  for (const PagingTimes::WorkSpan& copy : times.fetches) {
    there[copy.index].begin = copy.begin;
    add(copy, history.fetches);
  }
  size_t of_before = times.write_backs.size();
  for (const Stay& stay : plan.stays) of_before -= stay.written_back ? 1 : 0;
  for (size_t w = 0; w < times.write_backs.size(); ++w) {
    const PagingTimes::WorkSpan& copy = times.write_backs[w];
    if (w < of_before) {
      hold(copy.index, 0, copy.end);
    } else {
      there[copy.index].end = copy.end;
    }
    add(copy, history.write_backs);
  }
  for (size_t stay = 0; stay < there.size(); ++stay) {
    hold(static_cast<int>(stay), there[stay].begin, there[stay].end);
  }
  return history;
}

}  // namespace gyre
