#include "memory/resident/memory_plan.h"

#include <algorithm>
#include <span>

#include "engine/runtime/check.h"
#include "memory/resident/strip_packing.h"
#include "memory/trace/trace_blocks.h"

namespace gyre {
namespace {

// Each block's offset in its arena; gives the plan the arenas' extents and the peak.
std::vector<size_t> PlaceBlocks(const AccessTrace& trace, std::span<const TraceBlock> blocks,
                                MemoryPlan& plan) {
  std::vector<size_t> offsets(blocks.size());
  // Those that are so, one after another from `end` on.
  const auto place_in_order = [&](Arena arena, bool persistent, size_t end) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].arena != arena || blocks[b].persistent != persistent) continue;
      offsets[b] = end;
      end += blocks[b].bytes;
    }
    return end;
  };
  plan.communication_bytes =
      place_in_order(Arena::kCommunication, false, place_in_order(Arena::kCommunication, true, 0));
  plan.persistent_bytes = place_in_order(Arena::kDevice, true, 0);

  std::vector<size_t> shared;
  std::vector<PackItem> items;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const TraceBlock& block = blocks[b];
    if (block.arena != Arena::kDevice || block.persistent || block.last_step < 0) continue;
    shared.push_back(b);
    items.push_back({block.bytes, block.first_step, block.last_step});
  }
  const Packing packing = PackBlocks(items);
  for (size_t i = 0; i < shared.size(); ++i) {
    offsets[shared[i]] = plan.persistent_bytes + packing.offsets[i];
  }
  plan.device_bytes = plan.persistent_bytes + packing.extent;
  plan.lower_bound_bytes = plan.persistent_bytes;
  const std::vector<size_t> live = LiveBytes(items, static_cast<int>(trace.steps.size()));
  if (!live.empty()) {
    const auto peak = std::max_element(live.begin(), live.end());
    plan.lower_bound_bytes += *peak;
    plan.peak_step = static_cast<int>(peak - live.begin());
  }
  return offsets;
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const AccessTrace& trace, size_t capacity_bytes,
                                      size_t reserved_bytes) {
  ASSIGN_OR_RETURN(TraceBlocks cut, CutIntoBlocks(trace));
  for (TraceBlock& block : cut.blocks) {
    if (!block.persistent && block.arena != Arena::kCommunication) continue;
    block.first_step = 0;
    block.last_step = static_cast<int>(trace.steps.size()) - 1;
  }
  MemoryPlan plan;
  const std::vector<size_t> offsets = PlaceBlocks(trace, cut.blocks, plan);
  for (const auto& [b, offset] : cut.states) {
    const TraceBlock& block = cut.blocks[b];
    plan.placements.push_back(
        {block.arena, offsets[b] + offset, block.first_step, block.last_step});
  }
  RETURN_IF_ERROR(CheckCapacity(trace, plan, capacity_bytes, reserved_bytes));
  return plan;
}

}  // namespace gyre
