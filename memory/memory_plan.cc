#include "memory/memory_plan.h"

#include <algorithm>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"
#include "memory/plan_text.h"
#include "memory/strip_packing.h"

namespace gyre {
namespace {

// Sums below this cannot overflow, whatever is added for alignment.
constexpr size_t kMostBytes = size_t{1} << 60;

// What is placed as a whole: a state with its views, or a contiguous group of such states.
struct Block {
  std::vector<int> members;     // states, in order of declaration
  std::vector<size_t> offsets;  // of each member, within the block
  size_t bytes = 0;             // a multiple of kPlanAlignment
  int first_step = 0, last_step = -1;
  size_t offset = 0;  // within the arena
};

// The state whose memory a state lies in (itself unless it is a view), and where in it.
struct Root {
  int state = -1;  // -1: not resolved yet
  size_t offset = 0;
};

absl::Status CheckStates(const AccessTrace& trace) {
  const int count = static_cast<int>(trace.states.size());
  size_t total = 0;
  for (int i = 0; i < count; ++i) {
    const TraceState& state = trace.states[i];
    if (state.bytes > kMostBytes || (total += state.bytes) > kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat(StateName(trace, i), " of ", state.bytes,
                                                     " bytes brings the sum beyond 2^60 bytes"));
    }
    if (state.view_of < -1 || state.view_of >= count) {
      return absl::InvalidArgumentError(absl::StrCat(StateName(trace, i), ": view of state ",
                                                     state.view_of, "; there are ", count));
    }
    if (state.contiguous_group < -1) {
      return absl::InvalidArgumentError(
          absl::StrCat(StateName(trace, i), ": contiguous group ", state.contiguous_group));
    }
    if (state.view_of >= 0 && state.contiguous_group >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          StateName(trace, i), ": a view cannot be in a contiguous group; its base can"));
    }
  }
  return absl::OkStatus();
}

// Follows every chain of views to its end.
absl::StatusOr<std::vector<Root>> ResolveViews(const AccessTrace& trace) {
  const std::vector<TraceState>& states = trace.states;
  std::vector<Root> roots(states.size());
  std::vector<int> chain;  // of views that wait for their base
  for (size_t i = 0; i < states.size(); ++i) {
    int state = static_cast<int>(i);
    while (roots[state].state < 0 && states[state].view_of >= 0) {
      const TraceState& base = states[states[state].view_of];
      const TraceState& view = states[state];
      if (view.bytes > base.bytes || view.view_offset > base.bytes - view.bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(StateName(trace, state), ": ", view.bytes, " bytes from ",
                         view.view_offset, " are beyond its base, ", StateName(trace, view.view_of),
                         " of ", base.bytes, " bytes"));
      }
      if (chain.size() == states.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(StateName(trace, state), ": its views form a circle"));
      }
      chain.push_back(state);
      state = view.view_of;
    }
    if (roots[state].state < 0) roots[state] = {state, 0};
    Root root = roots[state];
    for (; !chain.empty(); chain.pop_back()) {
      root.offset += states[chain.back()].view_offset;
      roots[chain.back()] = root;
    }
  }
  return roots;
}

// Blocks by their first member's declaration.  block_of: for each state that is not a view.
absl::StatusOr<std::vector<Block>> MakeBlocks(const AccessTrace& trace,
                                              std::vector<int>& block_of) {
  std::vector<Block> blocks;
  std::map<int, int> block_of_group;
  block_of.assign(trace.states.size(), -1);
  for (int i = 0; i < static_cast<int>(trace.states.size()); ++i) {
    const TraceState& state = trace.states[i];
    if (state.view_of >= 0) continue;
    int index = static_cast<int>(blocks.size());
    if (state.contiguous_group >= 0) {
      index = block_of_group.emplace(state.contiguous_group, index).first->second;
    }
    if (index == static_cast<int>(blocks.size())) blocks.emplace_back();
    Block& block = blocks[index];
    if (!block.members.empty()) {
      const TraceState& first = trace.states[block.members.front()];
      if (first.arena != state.arena || first.persistent != state.persistent) {
        return absl::InvalidArgumentError(
            absl::StrCat(StateName(trace, i), " and ", StateName(trace, block.members.front()),
                         " are in contiguous group ", state.contiguous_group,
                         " but differ in arena or persistence"));
      }
    }
    block.offsets.push_back(RoundUp(block.bytes, kGroupAlignment));
    block.bytes = block.offsets.back() + state.bytes;
    block.members.push_back(i);
    block_of[i] = index;
  }
  for (Block& block : blocks) block.bytes = RoundUp(block.bytes, kPlanAlignment);
  return blocks;
}

// Sets the blocks' lifetimes from what the steps touch, and checks the steps.
absl::Status FindLifetimes(const AccessTrace& trace, std::span<const Root> roots,
                           std::span<const int> block_of, std::vector<Block>& blocks) {
  const int steps = static_cast<int>(trace.steps.size());
  const int states = static_cast<int>(trace.states.size());
  std::vector<bool> written(trace.states.size());  // some of the memory of a state without a base
  for (int s = 0; s < steps; ++s) {
    const std::vector<TraceTouch>& touches = trace.steps[s].touches;
    for (const TraceTouch& touch : touches) {
      if (touch.state < 0 || touch.state >= states) {
        return absl::InvalidArgumentError(absl::StrCat(StepName(trace, s), " touches state ",
                                                       touch.state, "; there are ", states));
      }
      const int root = roots[touch.state].state;
      if (touch.write) written[root] = true;
      Block& block = blocks[block_of[root]];
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
  for (Block& block : blocks) {
    const TraceState& first = trace.states[block.members.front()];
    if (first.persistent || first.arena == Arena::kCommunication) {
      block.first_step = 0;
      block.last_step = steps - 1;
    }
  }
  return absl::OkStatus();
}

// Puts the blocks of one arena that `wanted` accepts one after another from `end` on.
template <typename Wanted>
size_t PlaceInOrder(std::span<Block> blocks, size_t end, Wanted wanted) {
  for (Block& block : blocks) {
    if (!wanted(block)) continue;
    block.offset = end;
    end += block.bytes;
  }
  return end;
}

// Gives every block its offset, and the plan the arenas' extents and the peak.
void PlaceBlocks(const AccessTrace& trace, std::span<Block> blocks, MemoryPlan& plan) {
  const auto is = [&trace](const Block& block, Arena arena, bool persistent) {
    const TraceState& first = trace.states[block.members.front()];
    return first.arena == arena && first.persistent == persistent;
  };
  for (bool persistent : {true, false}) {
    plan.communication_bytes = PlaceInOrder(
        blocks, plan.communication_bytes,
        [&](const Block& block) { return is(block, Arena::kCommunication, persistent); });
  }
  const size_t persistent_bytes =
      PlaceInOrder(blocks, 0, [&](const Block& block) { return is(block, Arena::kDevice, true); });

  std::vector<Block*> shared;
  std::vector<PackItem> items;
  for (Block& block : blocks) {
    if (!is(block, Arena::kDevice, false) || block.last_step < 0) continue;
    shared.push_back(&block);
    items.push_back({block.bytes, block.first_step, block.last_step});
  }
  const Packing packing = PackBlocks(items);
  for (size_t i = 0; i < shared.size(); ++i) {
    shared[i]->offset = persistent_bytes + packing.offsets[i];
  }
  plan.device_bytes = persistent_bytes + packing.extent;
  plan.lower_bound_bytes = persistent_bytes;
  const std::vector<size_t> live = LiveBytes(items, static_cast<int>(trace.steps.size()));
  if (!live.empty()) {
    const auto peak = std::max_element(live.begin(), live.end());
    plan.lower_bound_bytes += *peak;
    plan.peak_step = static_cast<int>(peak - live.begin());
  }
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const AccessTrace& trace, size_t capacity_bytes,
                                      size_t reserved_bytes) {
  RETURN_IF_ERROR(CheckStates(trace));
  ASSIGN_OR_RETURN(const std::vector<Root> roots, ResolveViews(trace));
  std::vector<int> block_of;
  ASSIGN_OR_RETURN(std::vector<Block> blocks, MakeBlocks(trace, block_of));
  RETURN_IF_ERROR(FindLifetimes(trace, roots, block_of, blocks));
  MemoryPlan plan;
  PlaceBlocks(trace, blocks, plan);

  plan.placements.resize(trace.states.size());
  for (const Block& block : blocks) {
    for (size_t m = 0; m < block.members.size(); ++m) {
      plan.placements[block.members[m]] = {trace.states[block.members[m]].arena,
                                           block.offset + block.offsets[m], block.first_step,
                                           block.last_step};
    }
  }
  for (size_t i = 0; i < trace.states.size(); ++i) {
    if (trace.states[i].view_of < 0) continue;
    plan.placements[i] = plan.placements[roots[i].state];
    plan.placements[i].offset += roots[i].offset;
  }
  RETURN_IF_ERROR(CheckCapacity(trace, plan, capacity_bytes, reserved_bytes));
  return plan;
}

absl::Status CheckCapacity(const AccessTrace& trace, const MemoryPlan& plan, size_t capacity_bytes,
                           size_t reserved_bytes) {
  if (reserved_bytes <= capacity_bytes && plan.device_bytes <= capacity_bytes - reserved_bytes) {
    return absl::OkStatus();
  }
  return CapacityError(trace, plan, capacity_bytes, reserved_bytes);
}

}  // namespace gyre
