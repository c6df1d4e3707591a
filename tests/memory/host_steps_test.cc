// Steps that run on the host, by hand: when they do, what is then copied, what waits for what.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "memory/planner/paging_plan.h"
#include "memory/planner/paging_schedule.h"

namespace gyre {
namespace {

constexpr size_t kPage = kPlanAlignment;

// Layers with a weight, its gradient and momentum, of `pages` each: forward, backward, update, of
// which the last may run on the host.
AccessTrace Layers(int layers, size_t pages) {
  AccessTrace trace;
  const auto add = [&](const std::string& name, bool persistent) {
    trace.states.push_back({.name = name, .bytes = pages * kPage, .persistent = persistent});
  };
  for (int i = 0; i < layers; ++i) {
    add(absl::StrCat("w", i), true);
    add(absl::StrCat("m", i), true);
    add(absl::StrCat("g", i), false);
    trace.steps.push_back({.name = "forward", .touches = {{3 * i, true, false}}, .seconds = 1e-3});
  }
  for (int i = layers - 1; i >= 0; --i) {
    trace.steps.push_back({.name = "backward",
                           .touches = {{3 * i, true, false}, {3 * i + 2, false, true}},
                           .seconds = 2e-3});
    trace.steps.push_back(
        {.name = "update",
         .touches = {{3 * i, true, true}, {3 * i + 1, true, true}, {3 * i + 2, true, false}},
         .host_bytes = 5 * pages * kPage});
  }
  return trace;
}

// A copy takes as long as four forward steps.
PagingCosts Slow(const AccessTrace& trace, double host_bytes_per_s) {
  const double bandwidth = static_cast<double>(trace.states[0].bytes) / 4e-3;
  return {.to_device_bytes_per_s = bandwidth,
          .to_host_bytes_per_s = bandwidth,
          .host_step_bytes_per_s = host_bytes_per_s};
}

PagingPlan Plan(const AccessTrace& trace, const PagingLimits& limits,
                double host_bytes_per_s = 1e12) {
  return PlanPaging(trace, Slow(trace, host_bytes_per_s), limits).value();
}

TEST(HostSteps, SlotsStayInTheirPages) {
  const AccessTrace trace = Layers(4, 10);
  const PagingPlan plan = Plan(trace, {.capacity_bytes = 40 * kPage});
  ASSERT_GE(plan.host_steps.size(), 2u);
  for (const auto& [position, blocks] : plan.host_steps) {
    const int weight = trace.steps[position].touches[0].state;
    const int slot = plan.states[weight + 1].block;
    ASSERT_GE(slot, 0);
    EXPECT_TRUE(plan.blocks[slot].page != kNoPage && !plan.blocks[slot].on_disk);
    EXPECT_EQ(plan.homes[weight / 3 * 2 + 1], Home::kHostPage);
    for (const Stay& stay : plan.stays) {
      if (std::ranges::find(blocks, stay.block) == blocks.end()) continue;
      EXPECT_NE(stay.block, slot) << "on the device";
      // The host reads the gradient, and has the weight's new value.
      EXPECT_EQ(stay.written_back, stay.block == plan.states[weight + 2].block);
    }
  }
}

TEST(HostSteps, OnlyWhereThatIsFaster) {
  AccessTrace trace = Layers(4, 10);
  const PagingLimits limits = {.capacity_bytes = 40 * kPage};
  const PagingPlan fast = Plan(trace, limits);
  // A tenth of the copies' bandwidth.
  const double bandwidth = Slow(trace, 1).to_host_bytes_per_s;
  const PagingPlan slow = Plan(trace, limits, bandwidth / 10);
  for (TraceStep& step : trace.steps) step.host_bytes = 0;
  const PagingPlan never = Plan(trace, limits);
  EXPECT_TRUE(slow.host_steps.empty() || slow.seconds < never.seconds);
  EXPECT_LE(slow.seconds, never.seconds);
  EXPECT_LT(fast.seconds, 0.8 * never.seconds);
  EXPECT_LT(fast.fetched_bytes, never.fetched_bytes);
  EXPECT_TRUE(never.host_steps.empty());
}

// Whatever another plan of the trace has chosen stays, however long it takes now.
TEST(HostSteps, StayAsTheyAreGiven) {
  const AccessTrace trace = Layers(4, 10);
  PagingLimits limits = {.capacity_bytes = 40 * kPage};
  const PagingPlan first = Plan(trace, limits);
  const std::vector<int> chosen = HostStepsOf(first), none;
  limits.homes = &first.homes;
  for (const std::vector<int>* const given : {&chosen, &none}) {
    limits.host_steps = given;
    for (const double host_bytes_per_s : {1e12, 1e3}) {
      const PagingPlan plan = Plan(trace, limits, host_bytes_per_s);
      EXPECT_EQ(HostStepsOf(plan), *given) << host_bytes_per_s;
    }
  }
}

TEST(HostSteps, NotWithPagesOnDisk) {
  const AccessTrace trace = Layers(4, 10);
  const PagingPlan disk = Plan(trace, {.capacity_bytes = 60 * kPage, .host_bytes = 40 * kPage});
  EXPECT_GT(disk.disk_bytes, 0u);
  EXPECT_TRUE(disk.host_steps.empty());
}

// One whose weight another net of the run keeps on the device runs there; and one whose weight has
// no page because it is beside a pinned state of its group.  Here the last layer's, which is the
// first to be updated.
TEST(HostSteps, NotOnWhatIsOnTheDeviceForGood) {
  AccessTrace trace = Layers(4, 10);
  std::vector<Home> homes(8, Home::kHostPage);
  homes[6] = Home::kDevice;
  const PagingPlan given = Plan(trace, {.capacity_bytes = 50 * kPage, .homes = &homes});
  trace.states.push_back({.name = "pinned",
                          .bytes = kPage,
                          .persistent = true,
                          .pinned = true,
                          .contiguous_group = 0});
  trace.states[9].contiguous_group = 0;
  const PagingPlan grouped = Plan(trace, {.capacity_bytes = 51 * kPage});
  for (const PagingPlan& plan : {given, grouped}) {
    ASSERT_FALSE(plan.host_steps.empty());
    EXPECT_GT(plan.host_steps[0].position, 5);
  }
}

// And leave what is pinned alone.
TEST(HostSteps, WaitForTheirPagesAndAreWaitedFor) {
  AccessTrace trace = Layers(4, 10);
  const int pinned = static_cast<int>(trace.states.size());
  trace.states.push_back({.name = "step", .bytes = kPage, .persistent = true, .pinned = true});
  for (TraceStep& step : trace.steps) step.touches.push_back({pinned, true, false});
  const PagingPlan plan = Plan(trace, {.capacity_bytes = 41 * kPage});
  const int count = static_cast<int>(plan.host_steps.size());
  ASSERT_GE(count, 2);
  const PagingSchedule schedule = SchedulePaging(plan);
  ASSERT_EQ(schedule.host_steps.size(), plan.host_steps.size());
  std::map<int, int> updated;  // by weight: host step
  for (int h = 0; h < count; ++h) {
    const auto& [position, blocks] = plan.host_steps[h];
    updated[plan.states[trace.steps[position].touches[0].state].block] = h;
    EXPECT_EQ(blocks.size(), 3u);
    EXPECT_EQ(schedule.host_steps[h].after_step, position - 1);
    // For its gradient's write-back.
    ASSERT_EQ(schedule.host_steps[h].after_writes.size(), 1u);
    const Stay& gradient = plan.stays[schedule.host_steps[h].after_writes[0]];
    EXPECT_EQ(gradient.last_step, position - 1);
    // Which waits for the last that read that page's memory: gradients take turns in it.
    const size_t page = plan.blocks[gradient.block].page;
    const auto shares = [&](int other) {
      const std::vector<int>& used = plan.host_steps[other].blocks;
      return std::ranges::any_of(used, [&](int b) { return plan.blocks[b].page == page; });
    };
    int before = h;
    do before = (before + count - 1) % count;
    while (!shares(before));
    EXPECT_EQ(schedule.host_before_write[schedule.host_steps[h].after_writes[0]], before);
  }
  // Forward's fetch of a weight waits for the update in the iteration before.
  for (const PagingSchedule::ScheduledWork& fetch : schedule.fetches) {
    const auto at = updated.find(plan.stays[fetch.stay].block);
    EXPECT_EQ(fetch.after_host, at == updated.end() ? -1 : at->second);
    EXPECT_LT(fetch.after_step, plan.stays[fetch.stay].first_step);
  }
  const PagingCosts costs = Slow(trace, 50 * kPage / 1e-3);  // an update takes a millisecond
  const PagingTimes times = PredictTimes(trace, plan, schedule, costs);
  ASSERT_GE(static_cast<int>(times.host_steps.size()), count);
  const PagingTimes::WorkSpan& last = times.host_steps.back();
  EXPECT_EQ(last.index, count - 1);
  EXPECT_NEAR(last.end - last.begin, 1e-3, 1e-9);
}

}  // namespace
}  // namespace gyre
