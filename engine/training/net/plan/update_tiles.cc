#include <algorithm>

#include "engine/training/net/plan/net_trace.h"
#include "memory/planner/paging_plan.h"
#include "memory/resident/memory_plan.h"

namespace gyre {

void CutUpdates(const NetTrace& trace, TraceInput& input) {
  const GradientOrder& order = input.order;
  OptimizerSlots& slots = input.slots;
  AccessTrace others = trace.trace;
  for (size_t step = 0; step < trace.program.size(); ++step) {
    const InstructionKind kind = trace.program[step].kind;
    const bool of_tile = kind == InstructionKind::kMeasureGradient ||
                         kind == InstructionKind::kMeasureChange ||
                         kind == InstructionKind::kUpdate;
    if (of_tile) others.steps[step].touches.clear();
  }
  const size_t largest = FindLargestStep(others).bytes;
  for (TraceStep& step : others.steps) step.touches.clear();
  const size_t always = FindLargestStep(others).bytes;
  for (size_t b = 0; b < slots.buckets.size(); ++b) {
    OptimizerSlots::SlotBucket& bucket = slots.buckets[b];
    const int first = order.gradients[order.buckets[b].first].parameter;
    if (TableOf(input.tables, first) || slots.arrays(b) == 0 || bucket.elements == 0) continue;
    size_t bytes = RoundUp(order.buckets[b].bytes, kPlanAlignment);
    for (int g = order.buckets[b].first; g < order.buckets[b].last; ++g) {
      const auto count = static_cast<size_t>(order.gradients[g].count);
      bytes += RoundUp(count * SizeOf(bucket.dtype), kPlanAlignment);
    }
    const size_t room = largest - std::min(largest, always + bytes);
    const size_t of_array = room / static_cast<size_t>(slots.arrays(b)) / kPlanAlignment;
    const size_t least = CeilDiv(slots.bytes(b), kMostTiles * kPlanAlignment);
    size_t pages = std::max(of_array, least);
    if (input.spec.shape.measures()) {
      const auto piece = static_cast<size_t>(PieceElements(input.spec.shape, bucket.dtype));
      pages = RoundUp(pages, CeilDiv(piece * SizeOf(slots.dtype(b)), kPlanAlignment));
    }
    bucket.tile_elements = std::min(
        bucket.elements, static_cast<int64_t>(pages * kPlanAlignment / SizeOf(slots.dtype(b))));
  }
}

}  // namespace gyre
