#include "memory/trace/trace_blocks.h"

#include <algorithm>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"
#include "memory/trace/trace_text.h"

namespace gyre {
namespace {

// Sums below this cannot overflow, whatever is added for alignment.
constexpr size_t kMostBytes = size_t{1} << 60;

// The state whose memory a state lies in (itself unless it is a view), and where in it.
struct Root {
  int state = 0;
  size_t offset = 0;
};

// Follows a chain of views to its end.
Root RootOf(const AccessTrace& trace, int state) {
  const std::vector<TraceState>& states = trace.states;
  Root root = {state};
  for (size_t links = 0; states[root.state].view_of >= 0; ++links) {
    const TraceState& view = states[root.state];
    const TraceState& base = states[view.view_of];
    GYRE_CHECK(links < states.size());  // no circle
    GYRE_CHECK(view.bytes <= base.bytes && view.view_offset <= base.bytes - view.bytes);
    root = {view.view_of, root.offset + view.view_offset};
  }
  return root;
}

absl::Status CheckStates(const AccessTrace& trace) {
  const int count = static_cast<int>(trace.states.size());
  size_t total = 0;
  for (int i = 0; i < count; ++i) {
    const TraceState& state = trace.states[i];
    if (state.bytes > kMostBytes || (total += state.bytes) > kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat(StateName(trace, i), " of ", state.bytes,
                                                     " bytes brings the sum beyond 2^60 bytes"));
    }
    const bool is_view = state.view_of >= 0;
    GYRE_CHECK(state.view_of >= -1 && state.view_of < count && state.contiguous_group >= -1);
    GYRE_CHECK(is_view ? state.contiguous_group < 0 : state.persistent || !state.pinned);
  }
  return absl::OkStatus();
}

// Blocks but for their lifetimes and pages.  Places the states that are not views.
TraceBlocks MakeBlocks(const AccessTrace& trace) {
  TraceBlocks cut;
  std::map<int, int> block_of_group;
  for (int i = 0; i < static_cast<int>(trace.states.size()); ++i) {
    const TraceState& state = trace.states[i];
    TraceBlocks::BlockOffset& at = cut.states.emplace_back();
    if (state.view_of >= 0) continue;
    at.block = static_cast<int>(cut.blocks.size());
    if (state.contiguous_group >= 0) {
      at.block = block_of_group.emplace(state.contiguous_group, at.block).first->second;
    }
    if (at.block == static_cast<int>(cut.blocks.size())) {
      cut.blocks.push_back({.arena = state.arena, .persistent = state.persistent});
    }
    TraceBlock& block = cut.blocks[at.block];
    GYRE_CHECK(block.arena == state.arena && block.persistent == state.persistent);
    block.pinned |= state.pinned;
    at.offset = RoundUp(block.bytes, kGroupAlignment);
    block.bytes = at.offset + state.bytes;
    block.members.push_back(i);
  }
  for (TraceBlock& block : cut.blocks) block.bytes = RoundUp(block.bytes, kPlanAlignment);
  return cut;
}

// Sets the blocks' lifetimes from what the steps touch, and checks that they read what is there.
absl::Status FindLifetimes(const AccessTrace& trace, std::span<const Root> roots,
                           TraceBlocks& cut) {
  const int steps = static_cast<int>(trace.steps.size());
  const int states = static_cast<int>(trace.states.size());
  std::vector<bool> written(trace.states.size());  // some of the memory of a state without a base
  for (int s = 0; s < steps; ++s) {
    const std::vector<TraceTouch>& touches = trace.steps[s].touches;
    for (const TraceTouch& touch : touches) {
      GYRE_CHECK(touch.state >= 0 && touch.state < states);
      const int root = roots[touch.state].state;
      if (touch.write) written[root] = true;
      TraceBlock& block = cut.blocks[cut.states[root].block];
      if (block.last_step < 0) block.first_step = s;
      block.last_step = s;
    }
    for (const TraceTouch& touch : touches) {
      const int root = roots[touch.state].state;
      if (touch.read && !written[root] && !trace.states[root].persistent) {
        return absl::InvalidArgumentError(absl::StrCat(StepName(trace, s), " reads ",
                                                       StateName(trace, touch.state),
                                                       ", which no step has written"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::vector<BlockTouch>> FindTouches(const AccessTrace& trace, const TraceBlocks& cut) {
  std::vector<std::vector<BlockTouch>> touches(trace.steps.size());
  std::vector<bool> written(cut.blocks.size());
  for (size_t s = 0; s < trace.steps.size(); ++s) {
    std::vector<BlockTouch>& of_step = touches[s];
    std::vector<bool> whole;  // by block of the step: written
    for (const TraceTouch& touch : trace.steps[s].touches) {
      const int b = cut.states[touch.state].block;
      const std::vector<int>& members = cut.blocks[b].members;
      auto at = std::ranges::find(of_step, b, &BlockTouch::block);
      if (at == of_step.end()) {
        at = of_step.insert(at, {.block = b});
        whole.push_back(false);
      }
      const bool all = touch.write && members.size() == 1 && members.front() == touch.state;
      at->reads |= touch.read || !all;
      at->writes |= touch.write;
      if (all) whole[at - of_step.begin()] = true;
    }
    for (size_t i = 0; i < of_step.size(); ++i) {
      const int b = of_step[i].block;
      // Where there is nothing before it reads what it writes itself.
      if (whole[i] && !written[b] && !cut.blocks[b].persistent) of_step[i].reads = false;
      if (of_step[i].writes) written[b] = true;
    }
  }
  return touches;
}

std::vector<bool> RootsInUse(const AccessTrace& trace) {
  std::vector<bool> in_use;
  for (const TraceState& state : trace.states) {
    const bool lasts = state.persistent || state.arena == Arena::kCommunication;
    in_use.push_back(lasts && state.view_of < 0);
  }
  for (const TraceStep& step : trace.steps) {
    for (const TraceTouch& touch : step.touches) {
      in_use[RootOf(trace, touch.state).state] = true;
    }
  }
  return in_use;
}

absl::StatusOr<TraceBlocks> CutIntoBlocks(const AccessTrace& trace) {
  RETURN_IF_ERROR(CheckStates(trace));
  std::vector<Root> roots;
  for (size_t i = 0; i < trace.states.size(); ++i) {
    roots.push_back(RootOf(trace, static_cast<int>(i)));
  }
  TraceBlocks cut = MakeBlocks(trace);
  RETURN_IF_ERROR(FindLifetimes(trace, roots, cut));
  std::vector<bool> narrow(cut.blocks.size(), true);
  for (size_t i = 0; i < trace.states.size(); ++i) {
    if (trace.states[i].view_of >= 0) {
      cut.states[i] = cut.states[roots[i].state];
      cut.states[i].offset += roots[i].offset;
    }
    if (!trace.states[i].may_narrow) narrow[cut.states[i].block] = false;
  }
  for (size_t b = 0; b < cut.blocks.size(); ++b) {
    TraceBlock& block = cut.blocks[b];
    const bool halves = narrow[b] && !block.persistent;
    block.page_bytes = halves ? RoundUp(block.bytes / 2, kPlanAlignment) : block.bytes;
  }
  return cut;
}

}  // namespace gyre
