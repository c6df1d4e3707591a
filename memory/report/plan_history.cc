#include "memory/report/plan_history.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "memory/planner/paging_schedule.h"
#include "memory/trace/trace_blocks.h"

namespace gyre {
PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const MemoryPlan& plan) {
  PlanHistory history = {.kinds = kinds.names};
  for (const TraceStep& step : trace.steps) {
    const double begin = history.seconds;
    history.seconds += step.seconds;
    history.steps.push_back({.name = step.name, .begin = begin, .end = history.seconds});
  }
  for (size_t i = 0; i < trace.states.size(); ++i) {
    const TraceState& state = trace.states[i];
    const auto [arena, offset, first, last] = plan.placements[i];
    if (state.view_of >= 0 || last < 0) continue;
    history.allocations.push_back({.kind = kinds.of[i],
                                   .bytes = state.bytes,
                                   .begin = history.steps[first].begin,
                                   .end = history.steps[last].end});
  }
  return history;
}

PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const PagingPlan& plan,
                      const PagingCosts& costs) {
  const PagingTimes times = PredictTimes(trace, plan, SchedulePaging(plan), costs);
  PlanHistory history = {
      .kinds = kinds.names, .seconds = times.seconds, .stalled_seconds = times.stalled_seconds};
  const auto add = [&](const PagingTimes::WorkSpan& work, std::string name, size_t bytes,
                       std::vector<PlanHistory::Span>& to) {
    if (work.begin >= history.seconds) return;
    to.push_back({.name = std::move(name),
                  .begin = std::max(0.0, work.begin),
                  .end = std::min(history.seconds, work.end),
                  .bytes = bytes});
  };
  std::vector<bool> ran(trace.steps.size(), false);
  for (const auto& [position, begin, end] : times.steps) {
    if (plan.HostStepAt(position) >= 0) continue;
    const int step = plan.order[position];
    history.steps.push_back(
        {.name = trace.steps[step].name, .begin = begin, .end = end, .again = ran[step]});
    ran[step] = true;
  }
  for (const PagingTimes::WorkSpan& work : times.host_steps) {
    const TraceStep& step = trace.steps[plan.order[plan.host_steps[work.index].position]];
    add(work, step.name, step.host_bytes, history.host_steps);
  }
  const std::vector<bool> in_use = RootsInUse(trace);
  for (size_t i = 0; i < trace.states.size(); ++i) {
    if (plan.states[i].block >= 0 || !in_use[i]) continue;
    history.allocations.push_back(
        {.kind = kinds.of[i], .bytes = trace.states[i].bytes, .end = history.seconds});
  }
  const auto copy = [&](const PagingTimes::WorkSpan& of, std::vector<PlanHistory::Span>& to) {
    const PagedBlock& block = plan.BlockOf(of.index);
    const std::string& first = trace.states[block.states.front()].name;
    add(of, block.states.size() == 1 ? first : first + " and others", block.page_bytes, to);
  };
  const auto hold = [&](const PagingTimes::WorkSpan& stay) {
    const PagedBlock& block = plan.BlockOf(stay.index);
    history.allocations.push_back({.kind = kinds.of[block.states.front()],
                                   .bytes = block.bytes,
                                   .begin = std::max(0.0, stay.begin),
                                   .end = std::min(history.seconds, stay.end)});
  };
  std::vector<PagingTimes::WorkSpan> there;  // by stay, with its copies
  for (const Stay& stay : plan.stays) {
    there.push_back({static_cast<int>(there.size()), times.steps[stay.first_step].begin,
                     times.steps[stay.last_step].end});
  }
  for (const PagingTimes::WorkSpan& fetch : times.fetches) {
    there[fetch.index].begin = fetch.begin;
    copy(fetch, history.fetches);
  }
  auto of_before = static_cast<int64_t>(times.write_backs.size()) -
                   std::ranges::count_if(plan.stays, &Stay::written_back);
  for (const PagingTimes::WorkSpan& write : times.write_backs) {
    if (of_before-- > 0) {
      hold({write.index, 0, write.end});
    } else {
      there[write.index].end = write.end;
    }
    copy(write, history.write_backs);
  }
  std::ranges::for_each(there, hold);
  return history;
}

}  // namespace gyre
