#include "memory/planner/host_steps.h"

#include <algorithm>
#include <set>
#include <utility>

#include "memory/planner/ranked_search.h"

namespace gyre {
namespace {

// Whether it touches a state that is on the device for good only because a pinned one is of its
// block.  A step on the host would look for its page.
bool TouchesBesidePinned(const AccessTrace& trace, const TraceBlocks& cut, const TraceStep& step) {
  return std::ranges::any_of(step.touches, [&](const TraceTouch& touch) {
    int root = touch.state;
    while (trace.states[root].view_of >= 0) root = trace.states[root].view_of;
    const bool pinned = trace.states[root].persistent && trace.states[root].pinned;
    return cut.blocks[cut.states[root].block].pinned && !pinned;
  });
}

}  // namespace

std::vector<int> HostCandidates(const AccessTrace& trace, const TraceBlocks& cut,
                                const std::vector<std::vector<BlockTouch>>& touches,
                                const std::vector<bool>& resident) {
  std::vector<int> steps(cut.blocks.size());  // by block: that touch it
  for (const std::vector<BlockTouch>& of_step : touches) {
    for (const BlockTouch& touch : of_step) ++steps[touch.block];
  }
  std::vector<std::pair<double, int>> ranked;
  for (size_t s = 0; s < trace.steps.size(); ++s) {
    if (trace.steps[s].host_bytes == 0) continue;
    bool can = !TouchesBesidePinned(trace, cut, trace.steps[s]);
    double saved = 0;
    for (const auto& [b, reads, writes] : touches[s]) {
      const TraceBlock& block = cut.blocks[b];
      if (block.pinned || block.bytes == 0) continue;
      // Nor what travels in 16 bits.
      const bool whole = block.page_bytes == block.bytes;
      can &= block.arena == Arena::kDevice && !resident[b] && whole;
      const auto bytes = static_cast<double>(block.bytes);
      if (!block.persistent) {
        saved -= reads ? bytes : 0;  // which goes out for it
      } else if (steps[b] == 1) {
        saved += (reads ? bytes : 0) + (writes ? bytes : 0);
      } else {
        saved += writes ? bytes : 0;
      }
    }
    const auto moved = static_cast<double>(trace.steps[s].host_bytes);
    if (can && saved > 0) ranked.emplace_back(saved / moved, static_cast<int>(s));
  }
  std::ranges::stable_sort(ranked, std::greater(), &std::pair<double, int>::first);
  std::vector<int> candidates;
  for (const auto& [rank, step] : ranked) candidates.push_back(step);
  return candidates;
}

void ChooseHostSteps(const AccessTrace& trace, const std::vector<int>& candidates,
                     double without_any, const std::function<double(std::vector<bool>)>& seconds) {
  if (candidates.empty()) return;
  const int count = static_cast<int>(candidates.size());
  double best = without_any;
  std::set<int> tried;
  const auto consider = [&](int n) {
    if (n <= 0 || n > count || !tried.insert(n).second) return false;
    std::vector<bool> on_host(trace.steps.size());
    for (int i = 0; i < n; ++i) on_host[candidates[i]] = true;
    const double took = seconds(std::move(on_host));
    if (took >= best) return false;
    best = took;
    return true;
  };
  if (trace.steps.size() > kManySteps) {
    consider(count);
  } else {
    SearchCount(count, /*shares=*/4, consider);
  }
}

}  // namespace gyre
