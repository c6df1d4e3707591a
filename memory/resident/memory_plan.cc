#include "memory/resident/memory_plan.h"

#include <algorithm>
#include <functional>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"
#include "engine/runtime/count_text.h"
#include "memory/resident/strip_packing.h"
#include "memory/trace/trace_blocks.h"
#include "memory/trace/trace_text.h"

namespace gyre {
namespace {

constexpr size_t kStatesInTable = 16;

// The device states with memory of their own that are alive at the plan's peak, largest first.
std::vector<int> AliveAtPeak(const AccessTrace& trace, const MemoryPlan& plan) {
  std::vector<int> alive;
  for (size_t i = 0; i < trace.states.size(); ++i) {
    const TraceState& state = trace.states[i];
    const Placement& at = plan.placements[i];
    if (state.view_of >= 0 || at.arena != Arena::kDevice || state.bytes == 0) continue;
    // Without any step the persistent states are all there is.
    const bool in_lifetime = at.first_step <= plan.peak_step && plan.peak_step <= at.last_step;
    if (in_lifetime || state.persistent) alive.push_back(static_cast<int>(i));
  }
  std::ranges::stable_sort(alive, std::greater(), [&](int i) { return trace.states[i].bytes; });
  return alive;
}

std::string PeakName(const AccessTrace& trace, const MemoryPlan& plan) {
  return trace.steps.empty() ? "no step" : StepName(trace, plan.peak_step);
}

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

absl::Status CheckCapacity(const AccessTrace& trace, const MemoryPlan& plan, size_t capacity_bytes,
                           size_t reserved_bytes) {
  if (reserved_bytes <= capacity_bytes && plan.device_bytes <= capacity_bytes - reserved_bytes) {
    return absl::OkStatus();
  }
  return CapacityError(trace, capacity_bytes, plan.device_bytes + reserved_bytes, reserved_bytes,
                       absl::StrCat(" for ", PeakName(trace, plan), ", with ",
                                    BytesText(plan.lower_bound_bytes), " in use"),
                       AliveAtPeak(trace, plan));
}

std::string Explain(const AccessTrace& trace, const MemoryPlan& plan) {
  std::string text;
  const auto line = [&text](const char* what, size_t bytes) {
    absl::StrAppendFormat(&text, "%-26s%10s %16d bytes\n", what, ShortBytes(bytes), bytes);
  };
  line("device memory of the net", plan.device_bytes);
  line("  kept between iterations", plan.persistent_bytes);
  line("  reused within one", plan.device_bytes - plan.persistent_bytes);
  line("  most in use at once", plan.lower_bound_bytes);
  if (plan.communication_bytes > 0) line("gradients of all ranks", plan.communication_bytes);

  const std::vector<int> alive = AliveAtPeak(trace, plan);
  absl::StrAppendFormat(&text, "most is in use at %s of an iteration:\n", PeakName(trace, plan));
  absl::StrAppendFormat(&text, "  %10s %12s  %-12s %s\n", "size", "offset", "steps", "state");
  for (size_t i = 0; i < std::min(alive.size(), kStatesInTable); ++i) {
    const TraceState& state = trace.states[alive[i]];
    const Placement& at = plan.placements[alive[i]];
    const std::string steps =
        state.persistent ? std::string("always") : absl::StrCat(at.first_step, "..", at.last_step);
    absl::StrAppendFormat(&text, "  %10s %12d  %-12s %s\n", ShortBytes(state.bytes), at.offset,
                          steps, ShortText(state.name, kColumns - 2 - 10 - 1 - 12 - 2 - 12 - 1));
  }
  if (alive.size() > kStatesInTable) {
    size_t rest = 0;
    for (size_t i = kStatesInTable; i < alive.size(); ++i) rest += trace.states[alive[i]].bytes;
    absl::StrAppendFormat(
        &text, "  %10s %12s  %-12s %s\n", ShortBytes(rest), "", "",
        Counted(static_cast<int64_t>(alive.size() - kStatesInTable), "smaller state"));
  }
  return text;
}

}  // namespace gyre
