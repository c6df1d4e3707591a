// GeePS's plans and naive ones by hand: sizes are small numbers of pages.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "memory/planner/paging_schedule.h"
#include "tests/memory/random_trace.h"

namespace gyre {
namespace {

constexpr size_t kPage = 4096;

PagingPlan Plan(const AccessTrace& trace, size_t pages, PlannerKind planner,
                PagingLimits limits = {}, PagingCosts costs = {}) {
  limits.capacity_bytes = pages * kPage;
  absl::StatusOr<PagingPlan> plan = PlanPaging(trace, costs, limits, planner);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : PagingPlan();
}

// By stay, in pages: "a [1,2] at 3 in out".
std::vector<std::string> Stays(const AccessTrace& trace, const PagingPlan& plan) {
  std::vector<std::string> texts;
  for (const Stay& stay : plan.stays) {
    texts.push_back(absl::StrCat(trace.states[plan.blocks[stay.block].states.front()].name, " [",
                                 stay.first_step, ",", stay.last_step, "] at ", stay.offset / kPage,
                                 stay.fetched ? " in" : "", stay.written_back ? " out" : ""));
  }
  return texts;
}

TraceState Local(const char* name, size_t pages) { return {.name = name, .bytes = pages * kPage}; }
TraceState Parameter(const char* name, size_t pages) {
  return {.name = name, .bytes = pages * kPage, .persistent = true};
}

// Twice the 5 pages of "b" is needed before anything is pinned.  Then y makes the buffer smaller by
// more than it takes, 3 - 2 * (5 - 3), and so do x and z: 6 pages hold all.
TEST(GeepsPlan, PinsWhatThePeakUses) {
  const AccessTrace trace = {.states = {Local("x", 1), Local("y", 3), Local("z", 2)},
                             .steps = {{"a", {{0, false, true}}},
                                       {"b", {{1, false, true}, {2, false, true}}},
                                       {"c", {{0, true, false}, {2, true, false}}}}};
  const absl::StatusOr<PagingPlan> refused =
      PlanPaging(trace, {}, {.capacity_bytes = 10 * kPage - 1}, PlannerKind::kGeeps);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      refused.status().message(),
      "device memory: expected at least 40960 bytes (40.0 KiB) for step 1 \"b\", twice what it "
      "touches for GeePS's buffer, got 40959 bytes (40.0 KiB); the largest states there: "
      "\"y\" 12288 bytes (12.0 KiB), \"z\" 8192 bytes (8.0 KiB)");
  const PagingPlan plan = Plan(trace, 10, PlannerKind::kGeeps);
  EXPECT_TRUE(plan.stays.empty());
  EXPECT_EQ(plan.device_bytes, 6 * kPage);
}

// Layers of one page: a step's two make a buffer of four.  Beside it two pages hold a0 and a1. When
// forward 5 begins the allocator has come to backward 4, which so finds a4 there.
TEST(GeepsPlan, WhatTheNextStepsReadIsNotMoved) {
  const AccessTrace trace = EqualLayers(8, 1, 1e-3);
  const PagingPlan plan = Plan(trace, 6, PlannerKind::kGeeps);
  EXPECT_EQ(Stays(trace, plan),
            (std::vector<std::string>{"a2 [2,3] at 2 out", "a3 [3,4] at 3 out", "a4 [4,11] at 4",
                                      "a5 [5,10] at 5", "a6 [6,9] at 2", "a7 [7,8] at 3",
                                      "a3 [12,12] at 3 in", "a2 [13,13] at 2 in"}));
  EXPECT_EQ(plan.device_bytes, 6 * kPage);
  EXPECT_EQ(plan.page_bytes, 2 * kPage);
}

// At "a" x and p need a buffer of 10 pages.  x, pinned, leaves 5 of 13 beside one for p; p takes 3,
// q one.  Where parameters may have but 2, p is in its page.
TEST(GeepsPlan, PinsParametersLast) {
  const AccessTrace trace = {.states = {Parameter("p", 3), Local("x", 2), Parameter("q", 1)},
                             .steps = {{"a", {{0, true, false}, {1, false, true}}},
                                       {"b", {{1, true, false}, {2, true, true}}}}};
  EXPECT_TRUE(Plan(trace, 13, PlannerKind::kGeeps).stays.empty());
  const PagingPlan plan = Plan(trace, 13, PlannerKind::kGeeps, {.most_resident_bytes = 2 * kPage});
  EXPECT_EQ(Stays(trace, plan), std::vector<std::string>{"p [0,0] at 3 in"});
  EXPECT_EQ(plan.homes, (std::vector<Home>{Home::kHostPage, Home::kDevice}));
  // Not a page is left for p.
  EXPECT_EQ(Plan(trace, 10, PlannerKind::kGeeps).homes,
            (std::vector<Home>{Home::kHostPage, Home::kDevice}));
  // Homes that another net has chosen stand.
  const std::vector<Home> homes = {Home::kHostPage, Home::kHostPage};
  EXPECT_EQ(Plan(trace, 13, PlannerKind::kGeeps, {.homes = &homes}).homes, homes);
}

// A parameter that is read twice, what lies between, and what nobody reads.
AccessTrace CleanAndDead() {
  return {.states = {Parameter("p", 4), Local("large", 4), Local("dead", 1)},
          .steps = {{"a", {{0, true, false}, {2, false, true}}},
                    {"b", {{1, false, true}}},
                    {"c", {{0, true, false}, {2, false, true}}}}};
}

TEST(GeepsPlan, WhatIsCleanOrDeadIsNotWritten) {
  const AccessTrace trace = CleanAndDead();
  const PagingPlan plan = Plan(trace, 10, PlannerKind::kGeeps);
  EXPECT_EQ(Stays(trace, plan), (std::vector<std::string>{"p [0,2] at 1 in", "large [1,1] at 5"}));
}

TEST(NaivePlan, MovesAllThatStepsTouch) {
  const AccessTrace trace = CleanAndDead();
  const PagingPlan plan = Plan(trace, 5, PlannerKind::kNaive);
  EXPECT_EQ(Stays(trace, plan), (std::vector<std::string>{"p [0,0] at 0 in", "dead [0,0] at 4 out",
                                                          "large [1,1] at 0 out", "p [2,2] at 0 in",
                                                          "dead [2,2] at 4 out"}));
  // p's for good; "dead" holds its own over all steps.
  EXPECT_EQ(plan.page_bytes, 9 * kPage);
}

// Three layers' 9 ms, 5 fetches and 3 write-backs of a millisecond each, one after another.
TEST(NaivePlan, NothingOverlaps) {
  const AccessTrace trace = EqualLayers(3, 1, 1e-3);
  const PagingCosts costs = {.to_device_bytes_per_s = kPage / 1e-3,
                             .to_host_bytes_per_s = kPage / 1e-3};
  const PagingPlan plan = Plan(trace, 2, PlannerKind::kNaive, {}, costs);
  EXPECT_NEAR(plan.seconds, 17e-3, 1e-9);
  EXPECT_NEAR(plan.stalled_seconds, 8e-3, 1e-9);
  // What a step writes last, the next iteration's first waits for.
  AccessTrace updates = {.states = {Parameter("p", 1), Parameter("q", 1)},
                         .steps = {{"a", {{0, true, true}}, 1e-3}, {"b", {{1, true, true}}, 1e-3}}};
  const PagingPlan of_updates = Plan(updates, 1, PlannerKind::kNaive, {}, costs);
  EXPECT_NEAR(of_updates.seconds, 6e-3, 1e-9);
}

TEST(GeepsPlan, NoStepsNoStates) {
  for (const PlannerKind planner : {PlannerKind::kNaive, PlannerKind::kGeeps}) {
    EXPECT_EQ(Plan({}, 0, planner).device_bytes, 0u);
    const AccessTrace untouched = {.states = {Parameter("p", 1), Local("x", 1), Local("none", 0)},
                                   .steps = {{"a", {{2, false, true}}}}};
    EXPECT_EQ(Plan(untouched, 1, planner).stays.size(), 0u);
  }
}

}  // namespace
}  // namespace gyre
