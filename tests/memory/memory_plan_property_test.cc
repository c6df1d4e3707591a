// Properties of every plan, over thousands of random traces, against definitions written anew here.

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <map>

#include "engine/runtime/math.h"
#include "memory/resident/memory_plan.h"
#include "tests/memory/random_trace.h"

namespace gyre {
namespace {

constexpr int kTraces = 2000;
constexpr size_t kUnlimited = SIZE_MAX;

int RootOf(const AccessTrace& trace, int state) {
  while (trace.states[state].view_of >= 0) state = trace.states[state].view_of;
  return state;
}

// What shares one lifetime: the key is the same for a group's members, and for no one else.
int BlockKey(const AccessTrace& trace, int root) {
  const int group = trace.states[root].contiguous_group;
  return group >= 0 ? -1 - group : root;
}

struct Reference {
  struct Block {
    std::vector<int> members;
    int first_step = INT_MAX, last_step = -1;
    size_t bytes = 0;
    bool alive(int step) const { return first_step <= step && step <= last_step; }
  };
  std::map<int, Block> blocks;
};

Reference MakeReference(const AccessTrace& trace) {
  Reference reference;
  const int steps = static_cast<int>(trace.steps.size());
  for (int i = 0; i < static_cast<int>(trace.states.size()); ++i) {
    const TraceState& state = trace.states[i];
    if (state.view_of >= 0) continue;
    Reference::Block& block = reference.blocks[BlockKey(trace, i)];
    block.members.push_back(i);
    block.bytes = RoundUp(block.bytes, kGroupAlignment) + state.bytes;
    if (state.persistent || state.arena == Arena::kCommunication) {
      block.first_step = 0;
      block.last_step = steps - 1;
    }
  }
  for (int s = 0; s < steps; ++s) {
    for (const TraceTouch& touch : trace.steps[s].touches) {
      Reference::Block& block = reference.blocks[BlockKey(trace, RootOf(trace, touch.state))];
      block.first_step = std::min(block.first_step, s);
      block.last_step = std::max(block.last_step, s);
    }
  }
  for (auto& [key, block] : reference.blocks) block.bytes = RoundUp(block.bytes, kPlanAlignment);
  return reference;
}

void CheckPlan(const AccessTrace& trace, const MemoryPlan& plan) {
  const Reference reference = MakeReference(trace);
  ASSERT_EQ(plan.placements.size(), trace.states.size());
  const auto end = [&](int i) { return plan.placements[i].offset + trace.states[i].bytes; };

  // Views lie in their bases.
  for (int i = 0; i < static_cast<int>(trace.states.size()); ++i) {
    const int base = trace.states[i].view_of;
    if (base < 0) continue;
    EXPECT_EQ(plan.placements[i].offset,
              plan.placements[base].offset + trace.states[i].view_offset);
    EXPECT_LE(end(i), end(base));
    EXPECT_EQ(plan.placements[i].arena, plan.placements[base].arena);
    EXPECT_EQ(plan.placements[i].first_step, plan.placements[base].first_step);
    EXPECT_EQ(plan.placements[i].last_step, plan.placements[base].last_step);
  }

  for (const auto& [key, block] : reference.blocks) {
    const Placement& front = plan.placements[block.members.front()];
    EXPECT_EQ(front.offset % kPlanAlignment, 0u);
    size_t expected = front.offset;
    for (int member : block.members) {  // side by side in order, one lifetime, one arena
      const Placement& at = plan.placements[member];
      expected = RoundUp(expected, kGroupAlignment);
      EXPECT_EQ(at.offset, expected);
      expected += trace.states[member].bytes;
      EXPECT_EQ(at.arena, trace.states[member].arena);
      if (block.last_step >= 0) {
        EXPECT_EQ(at.first_step, block.first_step);
      }
      EXPECT_EQ(at.last_step, block.last_step);
    }
    if (block.last_step >= 0 || trace.states[block.members.front()].persistent) {
      EXPECT_LE(front.offset + block.bytes,
                front.arena == Arena::kDevice ? plan.device_bytes : plan.communication_bytes);
    }
  }

  // No two live blocks overlap.  Persistent ones and those of the communication arena also live
  // between the iterations, hence with a trace that has no steps.
  for (auto a = reference.blocks.begin(); a != reference.blocks.end(); ++a) {
    for (auto b = std::next(a); b != reference.blocks.end(); ++b) {
      const TraceState& first_a = trace.states[a->second.members.front()];
      const TraceState& first_b = trace.states[b->second.members.front()];
      if (first_a.arena != first_b.arena) continue;
      const bool communication = first_a.arena == Arena::kCommunication;
      const bool together = communication || (first_a.persistent && first_b.persistent) ||
                            (a->second.first_step <= b->second.last_step &&
                             b->second.first_step <= a->second.last_step);
      if (!together) continue;
      const size_t begin_a = plan.placements[a->second.members.front()].offset;
      const size_t begin_b = plan.placements[b->second.members.front()].offset;
      EXPECT_TRUE(begin_a + a->second.bytes <= begin_b || begin_b + b->second.bytes <= begin_a)
          << first_a.name << " at " << begin_a << " and " << first_b.name << " at " << begin_b;
    }
  }

  // The lower bound is what it says, at the step it says.
  size_t communication = 0, persistent = 0;
  for (const auto& [key, block] : reference.blocks) {
    const TraceState& first = trace.states[block.members.front()];
    if (first.arena == Arena::kCommunication) {
      communication += block.bytes;
    } else if (first.persistent) {
      persistent += block.bytes;
    }
  }
  EXPECT_EQ(plan.communication_bytes, communication);
  size_t most = persistent;
  for (int s = 0; s < static_cast<int>(trace.steps.size()); ++s) {
    size_t live = persistent;
    for (const auto& [key, block] : reference.blocks) {
      const TraceState& first = trace.states[block.members.front()];
      if (first.arena == Arena::kDevice && !first.persistent && block.alive(s)) live += block.bytes;
    }
    most = std::max(most, live);
    if (s == plan.peak_step) {
      EXPECT_EQ(live, plan.lower_bound_bytes);
    }
  }
  EXPECT_EQ(plan.lower_bound_bytes, most);
  EXPECT_GE(plan.device_bytes, plan.lower_bound_bytes);
  EXPECT_LE(plan.device_bytes, 2 * plan.lower_bound_bytes);
}

// Also within exactly its memory, and not within less.
void CheckTrace(const AccessTrace& trace) {
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(trace, kUnlimited);
  ASSERT_TRUE(plan.ok()) << plan.status();
  CheckPlan(trace, *plan);
  EXPECT_FALSE(Explain(trace, *plan).empty());
  const size_t needed = plan->device_bytes;
  const absl::StatusOr<MemoryPlan> again = PlanMemory(trace, needed);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == *plan);
  if (needed == 0) return;
  EXPECT_EQ(PlanMemory(trace, needed - 1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(MemoryPlanProperty, RandomAndTrainingTraces) {
  for (uint64_t seed = 0; seed < kTraces && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    CheckTrace(RandomTrace({seed, seed + 1000000}));
    if (seed < kTraces / 4) CheckTrace(TrainingTrace(seed, static_cast<int>(1 + seed % 30)));
  }
}

TEST(MemoryPlanProperty, TracesWithTheSamePersistentStatesAgreeOnTheirPlaces) {
  const auto persistent_offsets = [](const AccessTrace& trace) {
    const absl::StatusOr<MemoryPlan> plan = PlanMemory(trace, kUnlimited);
    std::vector<size_t> offsets;
    for (size_t i = 0; i < trace.states.size(); ++i) {
      if (trace.states[i].persistent) offsets.push_back(plan->placements[i].offset);
    }
    return offsets;
  };
  for (uint64_t seed = 0; seed < kTraces; ++seed) {
    EXPECT_EQ(persistent_offsets(RandomTrace({seed, 2 * seed})),
              persistent_offsets(RandomTrace({seed, 2 * seed + 1})))
        << "seed " << seed;
  }
}

// 5000 states over 2000 steps.  No time is asserted; a planner of cubic cost would not end.
TEST(MemoryPlanProperty, LargeTrace) {
  const AccessTrace trace = TrainingTrace(7, 1000);
  ASSERT_EQ(trace.states.size(), 5000u);
  ASSERT_EQ(trace.steps.size(), 2000u);
  const MemoryPlan plan = PlanMemory(trace, kUnlimited).value();
  EXPECT_LE(plan.device_bytes, 2 * plan.lower_bound_bytes);
}

}  // namespace
}  // namespace gyre
