// Properties of every paging plan, over random traces, against definitions written anew here; and
// what plans are worth, on nets whose best is known.  That each reader finds what was written last:
// pager_test, which does what plans say.

#include "memory/planner/paging_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "memory/planner/paging_schedule.h"
#include "tests/memory/random_trace.h"

namespace gyre {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kTraces = 400;
constexpr size_t kPage = 4096;

// Of training every other.
AccessTrace AnyTrace(uint64_t seed) {
  return seed % 2 == 0 ? RandomTrace({seed, seed})
                       : TrainingTrace(seed, 2 + static_cast<int>(seed % 10));
}

// The trace whose steps are a plan's positions.
AccessTrace InOrder(const AccessTrace& trace, const std::vector<int>& order) {
  AccessTrace run{.states = trace.states, .steps = {}};
  for (const int step : order) run.steps.push_back(trace.steps[step]);
  return run;
}

void CheckPlaces(const AccessTrace& trace, const PagingPlan& plan, size_t capacity) {
  EXPECT_LE(plan.device_bytes, capacity);
  // What lies there for good lies below all that comes and goes.
  size_t for_good = 0;
  const auto lies = [&](int i) {
    while (trace.states[i].view_of >= 0) i = trace.states[i].view_of;
    const auto [block, offset] = plan.states[i];
    if (block >= 0 || trace.states[i].arena != Arena::kDevice || trace.states[i].bytes == 0) return;
    for_good = std::max(for_good, offset + trace.states[i].bytes);
  };
  for (int i = 0; i < static_cast<int>(trace.states.size()); ++i) {
    if (trace.states[i].persistent && trace.states[i].view_of < 0) lies(i);
  }
  for (const TraceStep& step : trace.steps) {
    for (const TraceTouch& touch : step.touches) lies(touch.state);
  }
  const auto end = [&](const Stay& stay) { return stay.offset + plan.blocks[stay.block].bytes; };
  for (size_t i = 0; i < plan.stays.size(); ++i) {
    const Stay& a = plan.stays[i];
    EXPECT_EQ(a.offset % kPlanAlignment, 0u);
    EXPECT_GE(a.offset, for_good);
    EXPECT_LE(end(a), plan.device_bytes);
    EXPECT_LE(a.first_step, a.last_step);
    EXPECT_TRUE(!(a.fetched || a.written_back) || plan.blocks[a.block].page != kNoPage);
    for (size_t j = i + 1; j < plan.stays.size(); ++j) {
      const Stay& b = plan.stays[j];
      const bool same_time = a.first_step <= b.last_step && b.first_step <= a.last_step;
      const bool same_place = a.offset < end(b) && b.offset < end(a);
      ASSERT_FALSE(same_time && (same_place || a.block == b.block));
    }
  }
  // Pages of two blocks that both hold something are apart.
  std::map<int, std::pair<int, int>> held;
  for (const Stay& stay : plan.stays) {
    auto [at, is_new] = held.emplace(stay.block, std::pair(stay.last_step, stay.first_step));
    if (is_new && !stay.written_back) {
      held.erase(at);
    } else if (stay.fetched || stay.written_back) {
      at->second.second = stay.written_back ? stay.last_step : stay.first_step;
    }
  }
  for (const auto& [position, used] : plan.host_steps) {
    for (const int b : used) {
      auto& times = held.emplace(b, std::pair(position, position)).first->second;
      times = {std::min(times.first, position), std::max(times.second, position)};
    }
  }
  for (const auto& [a, times] : held) {
    for (const auto& [b, others] : held) {
      if (a >= b || plan.blocks[a].persistent || plan.blocks[b].persistent) continue;
      const PagedBlock &x = plan.blocks[a], &y = plan.blocks[b];
      const bool apart = x.page + x.bytes <= y.page || y.page + y.bytes <= x.page;
      const bool later = times.second < others.first || others.second < times.first;
      ASSERT_TRUE(apart || later || x.on_disk != y.on_disk);
    }
  }
  for (const PagedBlock& x : plan.blocks) {
    if (x.page == kNoPage) continue;
    EXPECT_LE(x.page + x.bytes, x.on_disk                 ? plan.disk_bytes
                                : plan.staging.slots == 0 ? plan.page_bytes
                                                          : plan.staging.offset);
    EXPECT_EQ(x.page % kPlanAlignment, 0u);
    const bool of_homes = x.on_disk && x.page < plan.disk_home_bytes;
    EXPECT_TRUE(!x.on_disk || of_homes == x.persistent);
    for (const PagedBlock& y : plan.blocks) {  // homes are for good
      if (&x == &y || !x.persistent || y.page == kNoPage || x.on_disk != y.on_disk) continue;
      ASSERT_TRUE(x.page + x.bytes <= y.page || y.page + y.bytes <= x.page);
    }
  }
  EXPECT_EQ(plan.staging.slots > 0, plan.disk_bytes > 0);
  EXPECT_EQ(plan.page_bytes,
            plan.staging.slots == 0 ? plan.page_bytes : plan.staging.offset + plan.staging.bytes());
}

// Steps of the block's states, whether they read what is there, and whether they write: whoever
// writes but a part leaves the rest.
struct Use {
  int step = 0;
  bool reads = false, writes = false;
};
std::vector<Use> UsesOf(const AccessTrace& trace, const PagingPlan& plan, int block) {
  std::vector<Use> uses;
  bool any_written = false;
  for (int step = 0; step < static_cast<int>(trace.steps.size()); ++step) {
    Use use{.step = step};
    bool touched = false, whole = false;
    for (const TraceTouch& touch : trace.steps[step].touches) {
      if (plan.states[touch.state].block != block) continue;
      const std::vector<int>& members = plan.blocks[block].states;
      const bool all = touch.write && members == std::vector<int>{touch.state};
      touched = true;
      whole |= all;
      use.reads |= touch.read || !all;
      use.writes |= touch.write;
    }
    if (!touched) continue;
    // What nothing was written to, and is made now, has no value before.
    if (whole && !any_written && !plan.blocks[block].persistent) use.reads = false;
    any_written |= use.writes;
    uses.push_back(use);
  }
  return uses;
}

// What is written back was written since the page was, and is read again; what is fetched is read;
// between two uses a block goes out and comes in once at most.
void CheckCopies(const AccessTrace& trace, const PagingPlan& plan) {
  for (int b = 0; b < static_cast<int>(plan.blocks.size()); ++b) {
    const std::vector<Use> uses = UsesOf(trace, plan, b);
    std::map<int, int> out, in;  // by index of the use after which, before which
    size_t next = 0;
    bool dirty = !plan.blocks[b].persistent;  // it has no page yet
    const auto pass_host = [&] {
      for (; next < uses.size() && plan.HostStepAt(uses[next].step) >= 0; ++next) {
        dirty &= !uses[next].writes;
      }
    };
    for (const Stay& stay : plan.stays) {
      if (stay.block != b) continue;
      pass_host();
      ASSERT_LT(next, uses.size());
      ASSERT_EQ(uses[next].step, stay.first_step);
      if (stay.fetched) {
        EXPECT_TRUE(uses[next].reads);
        EXPECT_EQ(++in[static_cast<int>(next)], 1);
      }
      while (next < uses.size() && uses[next].step <= stay.last_step) dirty |= uses[next++].writes;
      EXPECT_EQ(uses[next - 1].step, stay.last_step);
      if (!stay.written_back) continue;
      EXPECT_TRUE(dirty) << "clean";
      EXPECT_TRUE(next < uses.size() ? uses[next].reads : plan.blocks[b].persistent) << "dead";
      EXPECT_EQ(++out[static_cast<int>(next) - 1], 1);
      dirty = false;
    }
    pass_host();
    EXPECT_EQ(next, uses.size());
  }
}

class EveryPlanner : public ::testing::TestWithParam<PlannerKind> {};

TEST_P(EveryPlanner, PlacesAndCopiesWithinTheLeast) {
  const PlannerKind planner = GetParam();
  int tight = 0, repeats = 0, hosts = 0;
  for (int i = 0; i < kTraces; ++i) {
    SCOPED_TRACE(i);
    AccessTrace trace = AnyTrace(static_cast<uint64_t>(i));
    // Elsewhere steps take no time, as before they have been measured.
    for (size_t s = 0; i % 64 < 2 && s < trace.steps.size(); ++s) {
      trace.steps[s].seconds = 1e-6 * static_cast<double>(s * s % 29);
    }
    for (size_t s = 0; i % 4 < 2 && s < trace.steps.size(); ++s) {
      trace.steps[s].host_bytes = s % 3 > 0 ? 1 : 0;
    }
    const size_t least = FindLargestStep(trace, nullptr, planner).bytes;
    const absl::StatusOr<MemoryPlan> resident = PlanMemory(trace, ~size_t{0});
    ASSERT_TRUE(resident.ok());
    const size_t most = std::max(least, resident->device_bytes);
    for (const double share : {0.0, 0.1, 0.5, 1.0}) {
      SCOPED_TRACE(share);
      const size_t capacity =
          least + static_cast<size_t>(share * static_cast<double>(most - least));
      const absl::StatusOr<PagingPlan> plan =
          PlanPaging(trace, {}, {.capacity_bytes = capacity}, planner);
      ASSERT_TRUE(plan.ok()) << plan.status();
      CheckPlaces(trace, *plan, capacity);
      // GeePS's writes what is clean.
      if (planner == PlannerKind::kAuto) CheckCopies(InOrder(trace, plan->order), *plan);
      if (HasFatalFailure()) return;
      tight += plan->fetched_bytes > 0;
      repeats += plan->order.size() > trace.steps.size();
      hosts += !plan->host_steps.empty();
    }
    if (least == 0) continue;
    EXPECT_THAT(PlanPaging(trace, {}, {.capacity_bytes = least - 1}, planner).status().ToString(),
                AllOf(StartsWith("RESOURCE_EXHAUSTED: "), HasSubstr(absl::StrCat(least))));
  }
  EXPECT_GT(tight, kTraces);
  const bool may_repeat = planner == PlannerKind::kAuto;
  EXPECT_TRUE(may_repeat ? repeats > kTraces / 10 : repeats == 0) << repeats;
  EXPECT_TRUE(may_repeat ? hosts > kTraces / 4 : hosts == 0) << hosts;
}

INSTANTIATE_TEST_SUITE_P(PagingPlan, EveryPlanner,
                         ::testing::Values(PlannerKind::kAuto, PlannerKind::kNaive,
                                           PlannerKind::kGeeps),
                         [](const auto& of) {
                           return of.param == PlannerKind::kAuto    ? "Auto"
                                  : of.param == PlannerKind::kNaive ? "Naive"
                                                                    : "Geeps";
                         });

// An iteration takes at least as long as what must leave takes to leave, and to come back.
TEST(PagingPlan, EqualLayersComeCloseToTheBound) {
  constexpr int kLayers = 64;
  constexpr size_t kPages = 100;
  for (const double kappa : {0.5, 1.0, 2.0, 3.0}) {
    for (const double share : {0.25, 0.35, 0.5, 0.7}) {
      const AccessTrace trace = EqualLayers(kLayers, kPages, 1e-3);
      const double all = kLayers * kPages * kPage, forward = kLayers * 1e-3;
      const double bandwidth = all / (kappa * forward);
      const PagingPlan plan = *PlanPaging(trace, {bandwidth, bandwidth},
                                          {.capacity_bytes = static_cast<size_t>(share * all)});
      const double leaves = (1 - share) * all / bandwidth;
      const double bound = std::max(forward, leaves) + std::max(2 * forward, leaves);
      RecordProperty(absl::StrCat("kappa_", kappa, "_share_", share),
                     absl::StrCat(bound / plan.seconds));
      printf("kappa %.1f at %.0f %%: %.3f of the bound\n", kappa, 100 * share,
             bound / plan.seconds);
      EXPECT_GE(bound / plan.seconds, 0.9);
    }
  }
}

// GeePS's plan is one of those that are chosen from.
TEST(PagingPlan, IsNoSlowerThanGeeps) {
  int stalled = 0;
  for (uint64_t i = 0; i < kTraces / 8; ++i) {
    SCOPED_TRACE(i);
    AccessTrace trace = i % 8 == 0 ? AnyTrace(i) : TrainingTrace(i, 28 + static_cast<int>(i % 8));
    std::mt19937_64 rng(i);
    for (TraceStep& step : trace.steps) step.seconds = 1e-6 * static_cast<double>(rng() % 100);
    const size_t least = FindLargestStep(trace, nullptr, PlannerKind::kGeeps).bytes;
    const size_t capacity = least * (4 + i % 3) / 4;
    const absl::StatusOr<PagingPlan> plan = PlanPaging(trace, {}, {.capacity_bytes = capacity});
    const absl::StatusOr<PagingPlan> geeps =
        PlanPaging(trace, {}, {.capacity_bytes = capacity}, PlannerKind::kGeeps);
    ASSERT_TRUE(plan.ok() && geeps.ok());
    EXPECT_LE(plan->seconds, geeps->seconds * (1 + 1e-9));
    stalled += plan->stalled_seconds > 1e-9;
    CheckPlaces(trace, *plan, capacity);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(stalled, kTraces / 32);
}

// As small as staging can be.
constexpr size_t kLeastHost = 8 * kPage;

TEST(PagingPlan, PagesBeyondTheHostMemoryAreOnDisk) {
  int on_disk = 0, on_both = 0, homes = 0;
  for (uint64_t i = 0; i < kTraces; ++i) {
    SCOPED_TRACE(i);
    const AccessTrace trace = AnyTrace(i);
    PagingLimits limits = {.capacity_bytes = FindLargestStep(trace).bytes};
    if (i % 3 == 0) limits.most_resident_bytes = 0;
    const absl::StatusOr<PagingPlan> unbounded = PlanPaging(trace, {}, limits);
    ASSERT_TRUE(unbounded.ok());
    EXPECT_EQ(unbounded->disk_bytes, 0u);
    for (const double share : {0.0, 0.3, 0.7, 1.0}) {
      SCOPED_TRACE(share);
      limits.host_bytes = std::max(
          kLeastHost, static_cast<size_t>(share * static_cast<double>(unbounded->page_bytes)));
      const absl::StatusOr<PagingPlan> plan = PlanPaging(trace, {}, limits);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_LE(plan->page_bytes, limits.host_bytes);
      CheckPlaces(trace, *plan, limits.capacity_bytes);
      if (HasFatalFailure()) return;
      size_t read = 0;
      for (const Stay& stay : plan->stays) {
        const PagedBlock& block = plan->blocks[stay.block];
        read += stay.fetched && block.on_disk ? block.bytes : 0;
      }
      EXPECT_EQ(plan->disk_read_bytes, read);
      on_disk += plan->disk_bytes > 0;
      on_both += plan->disk_bytes > 0 && plan->staging.offset > 0;
      homes += plan->disk_home_bytes > 0;
    }
  }
  EXPECT_GT(on_disk, kTraces);
  EXPECT_GT(on_both, kTraces / 2);
  EXPECT_GT(homes, kTraces / 2);
}

// Two nets of a run find what is persistent in the same places.
TEST(PagingPlan, NetsAgreeOnHomesOnDisk) {
  int on_disk = 0;
  for (uint64_t i = 0; i < kTraces; ++i) {
    SCOPED_TRACE(i);
    const AccessTrace first = RandomTrace({i, i}), second = RandomTrace({i, i + 1});
    PagingLimits limits = {
        .capacity_bytes = std::max(FindLargestStep(first).bytes, FindLargestStep(second).bytes),
        .most_resident_bytes = 0,
        .host_bytes = kLeastHost + i % 40 * kPage};
    const absl::StatusOr<PagingPlan> one = PlanPaging(first, {}, limits);
    ASSERT_TRUE(one.ok()) << one.status();
    limits.homes = &one->homes;
    const absl::StatusOr<PagingPlan> other = PlanPaging(second, {}, limits);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(one->homes, other->homes);
    EXPECT_LE(other->page_bytes, limits.host_bytes);
    CheckPlaces(second, *other, limits.capacity_bytes);
    std::vector<const PagedBlock*> homes[2];
    for (const PagedBlock& block : one->blocks) {
      if (block.persistent) homes[0].push_back(&block);
    }
    for (const PagedBlock& block : other->blocks) {
      if (block.persistent) homes[1].push_back(&block);
    }
    ASSERT_EQ(homes[0].size(), homes[1].size());
    for (size_t h = 0; h < homes[0].size(); ++h) {
      ASSERT_EQ(homes[0][h]->page, homes[1][h]->page);
      ASSERT_EQ(homes[0][h]->on_disk, homes[1][h]->on_disk);
    }
    on_disk += other->disk_home_bytes > 0;
  }
  EXPECT_GT(on_disk, kTraces / 4);
}

TEST(PagingPlan, HostMemoryTooSmallForTheStaging) {
  const AccessTrace trace = EqualLayers(8, 10, 1e-3);
  PagingLimits limits = {.capacity_bytes = 4 * 10 * kPage, .host_bytes = kLeastHost - 1};
  EXPECT_EQ(PlanPaging(trace, {}, limits).status().message(),
            "host memory: expected at least 32768 bytes (32.0 KiB) for copies from and to the disk "
            "and what cannot lie there, got 32767 bytes (32.0 KiB)");
  limits.host_bytes = kLeastHost;
  EXPECT_TRUE(PlanPaging(trace, {}, limits).ok());
  limits.capacity_bytes = 8 * 10 * kPage;  // nothing has a page
  limits.host_bytes = 0;
  EXPECT_TRUE(PlanPaging(trace, {}, limits).ok());
}

// Host memory goes to what is needed soonest: here to what the last layers leave.
TEST(PagingPlan, WhatWaitsLongestIsOnDisk) {
  const AccessTrace trace = EqualLayers(32, 10, 1e-3);
  const PagingPlan plan =
      *PlanPaging(trace, {}, {.capacity_bytes = 4 * 10 * kPage, .host_bytes = 120 * kPage});
  int first_in_memory = -1;
  for (const PagedBlock& block : plan.blocks) {
    if (block.page == kNoPage) continue;
    if (!block.on_disk && first_in_memory < 0) first_in_memory = block.states.front();
    EXPECT_EQ(block.on_disk, first_in_memory < 0) << trace.states[block.states.front()].name;
  }
  EXPECT_GT(first_in_memory, 0);
}

// Of two times: the disk's own, and that of what is on it.
TEST(PagingPlan, ASlowDiskTakesItsTime) {
  const AccessTrace trace = EqualLayers(32, 10, 1e-3);
  PagingLimits limits = {.capacity_bytes = 4 * 10 * kPage};
  const absl::StatusOr<PagingPlan> without = PlanPaging(trace, {}, limits);
  limits.host_bytes = 64 * kPage;
  const absl::StatusOr<PagingPlan> fast = PlanPaging(trace, {}, limits);
  const absl::StatusOr<PagingPlan> slow =
      PlanPaging(trace, {.disk_read_bytes_per_s = 1e6, .disk_write_bytes_per_s = 1e7}, limits);
  ASSERT_TRUE(without.ok() && fast.ok() && slow.ok());
  EXPECT_GE(fast->seconds, without->seconds);
  EXPECT_GE(slow->seconds, static_cast<double>(slow->disk_read_bytes) / 1e6);
  EXPECT_GE(slow->seconds, static_cast<double>(slow->disk_written_bytes) / 1e7);
  EXPECT_LE(slow->seconds, static_cast<double>(slow->disk_read_bytes) / 1e6 +
                               static_cast<double>(slow->disk_written_bytes) / 1e7 + 0.1);
}

// Of 64 pages each; the device holds two.
AccessTrace FourLayers(bool may_narrow) {
  AccessTrace trace = EqualLayers(4, 64, 1e-3);
  for (TraceState& state : trace.states) state.may_narrow = may_narrow;
  for (TraceStep& step : trace.steps) step.seconds = 1e-3;
  return trace;
}

TEST(PagingPlan, CopiesOf16BitsHalveBytesPagesAndTime) {
  const AccessTrace wide = FourLayers(false), narrow = FourLayers(true);
  const size_t block = 64 * kPage;
  const size_t least = FindLargestStep(wide).bytes;
  ASSERT_EQ(least, 2 * block);
  // Two slots of an eighth of what travels.
  ASSERT_EQ(FindLargestStep(narrow).bytes, least + block / 8);
  const PagingCosts costs = {
      .to_device_bytes_per_s = 1e8, .to_host_bytes_per_s = 1e8, .convert_bytes_per_s = 1e9};
  const auto before = PlanPaging(wide, costs, {.capacity_bytes = least});
  const auto after = PlanPaging(narrow, costs, {.capacity_bytes = least + block / 8});
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  EXPECT_FALSE(before->rounds());
  EXPECT_TRUE(after->rounds());
  EXPECT_EQ(after->device_staging.offset, least);
  EXPECT_EQ(after->device_bytes, least + block / 8);
  EXPECT_EQ(before->fetched_bytes, 2 * block);
  EXPECT_EQ(after->fetched_bytes, block);
  EXPECT_EQ(2 * after->written_bytes, before->written_bytes);
  EXPECT_EQ(2 * after->page_bytes, before->page_bytes);
  // A copy takes half as long, and a tenth for the conversion.
  const CopySeconds whole = CopySecondsOf(block, block, costs);
  const CopySeconds half = CopySecondsOf(block, block / 2, costs);
  EXPECT_DOUBLE_EQ(half.in, 0.6 * whole.in);
  EXPECT_DOUBLE_EQ(half.out, 0.6 * whole.out);
  EXPECT_LT(after->stalled_seconds, 0.61 * before->stalled_seconds);
  // One byte less is too little, and says so.
  EXPECT_THAT(
      PlanPaging(narrow, costs, {.capacity_bytes = least + block / 8 - 1}).status().ToString(),
      AllOf(StartsWith("RESOURCE_EXHAUSTED: "),
            HasSubstr(absl::StrCat(least + block / 8, " bytes"))));
}

TEST(PagingPlan, NothingIsRoundedOfWhatIsNotWhollyActivations) {
  const auto page_bytes = [](const AccessTrace& trace) {
    const auto plan = PlanPaging(trace, {}, {.capacity_bytes = FindLargestStep(trace).bytes});
    GYRE_CHECK(plan.ok());
    std::vector<size_t> pages;
    for (const PagedBlock& block : plan->blocks) pages.push_back(block.page_bytes / kPage);
    return pages;
  };
  AccessTrace trace = FourLayers(true);
  EXPECT_EQ(page_bytes(trace), std::vector<size_t>({32, 32, 32, 32}));
  trace.states[1].may_narrow = false;
  // A view, of a part.
  trace.states.push_back({.name = "view", .bytes = 4, .view_of = 2});
  // Half of three pages is two; of one page one, and nothing is won.
  trace.states[3].bytes = 3 * kPage;
  EXPECT_EQ(page_bytes(trace), std::vector<size_t>({32, 64, 64, 2}));
  trace.states[3].bytes = 1;
  EXPECT_EQ(page_bytes(trace), std::vector<size_t>({32, 64, 64, 1}));
  // A group.
  trace.states[0].contiguous_group = trace.states[1].contiguous_group = 5;
  trace.states.back().may_narrow = true;
  EXPECT_EQ(page_bytes(trace), std::vector<size_t>({128, 32, 1}));
}

}  // namespace
}  // namespace gyre
