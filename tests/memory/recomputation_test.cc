// Which steps a plan runs again, on nets of a few steps where one rule decides: each with what
// allows it, and with one thing more that forbids it.

#include <gtest/gtest.h>

#include "memory/planner/paging_plan.h"

namespace gyre {
namespace {

constexpr size_t kPage = 4096;

// Copies are slow and steps take no time, so whatever may run again and saves a copy does.
std::vector<int> OrderOf(const AccessTrace& trace) {
  const absl::StatusOr<PagingPlan> plan =
      PlanPaging(trace, {.to_device_bytes_per_s = 1e6, .to_host_bytes_per_s = 1e6},
                 {.capacity_bytes = FindLargestStep(trace).bytes, .most_resident_bytes = 0});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? plan->order : std::vector<int>();
}

enum : int { kInput, kOutput, kLarge, kOther };
TraceTouch Read(int state) { return {state, true, false}; }
TraceTouch Write(int state) { return {state, false, true}; }
TraceTouch Both(int state) { return {state, true, true}; }

// Step 0 makes an output, step 1 needs all the device, step 2 reads the output.
AccessTrace Net() {
  return {.states = {{.name = "input", .bytes = 4 * kPage, .persistent = true},
                     {.name = "output", .bytes = 4 * kPage},
                     {.name = "large", .bytes = 16 * kPage},
                     {.name = "other", .bytes = 4 * kPage}},
          .steps = {{"make", {Read(kInput), Write(kOutput)}, 0, /*repeatable=*/true},
                    {"between", {Write(kLarge)}},
                    {"read", {Read(kOutput)}}}};
}

using Order = std::vector<int>;

TEST(Recomputation, MakesAgainWhatAReaderNeeds) {
  EXPECT_EQ(OrderOf(Net()), Order({0, 1, 0, 2}));
  AccessTrace fixed = Net();
  fixed.steps[0].repeatable = false;
  EXPECT_EQ(OrderOf(fixed), Order({0, 1, 2}));
}

TEST(Recomputation, NotWhereCopiesHide) {
  AccessTrace trace = Net();
  trace.steps.insert(trace.steps.begin() + 1, {.name = "long", .seconds = 10});
  trace.steps.insert(trace.steps.end() - 1, {.name = "long", .seconds = 10});
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 3, 4}));
}

TEST(Recomputation, NotWhereItTakesLongerThanCopies) {
  AccessTrace trace = Net();
  trace.steps[0].seconds = 10;
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2}));
}

TEST(Recomputation, NotFromWhatHasChanged) {
  AccessTrace updated = Net();
  updated.steps[1].touches = {Write(kLarge), Both(kInput)};
  EXPECT_EQ(OrderOf(updated), Order({0, 1, 2}));
  AccessTrace through_view = Net();
  through_view.states.push_back({.name = "part of input", .bytes = 1, .view_of = kInput});
  through_view.steps[1].touches = {Write(kLarge), Write(4)};
  EXPECT_EQ(OrderOf(through_view), Order({0, 1, 2}));
  // Another part of it does not matter.
  through_view.states.push_back(
      {.name = "another part", .bytes = 1, .view_of = kInput, .view_offset = 1});
  through_view.steps[0].touches = {Read(5), Write(kOutput)};
  EXPECT_EQ(OrderOf(through_view), Order({0, 1, 0, 2}));
}

TEST(Recomputation, NotInPlaceByItself) {
  AccessTrace trace = Net();
  trace.steps.insert(trace.steps.begin() + 1, {"change", {Both(kOutput)}});
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 3}));
  trace.steps[1].repeatable = true;
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 0, 1, 3}));
  trace.steps[0].repeatable = false;
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 3}));
}

// It would write over what has another value since.
TEST(Recomputation, NotOverWhatIsNeeded) {
  AccessTrace trace = Net();
  trace.steps[0].touches.push_back(Write(kOther));
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 0, 2}));
  trace.steps.insert(trace.steps.begin() + 1, {"change", {Both(kOther)}});
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 0, 3}));  // dead
  trace.steps[3].touches.push_back(Read(kOther));
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 3}));
  trace.steps[3].touches.back() = Write(kOther);
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 0, 3}));
  // Who touches it and no more does not end its value.
  trace.steps[3].touches.back() = {kOther, false, false};
  trace.steps.push_back({"read other", {Read(kOther)}});
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 3, 4}));
}

// Its scratch, which it reads when it has written it, is nothing to keep.
TEST(Recomputation, ScratchIsNobodysInput) {
  AccessTrace trace = Net();
  trace.steps[0].touches.push_back(Both(kOther));
  trace.steps[0].touches.insert(trace.steps[0].touches.begin(), Write(kOther));
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 0, 2}));
}

// Who would make one input again would write over the other.
TEST(Recomputation, InputsMustBeThereTogether) {
  AccessTrace trace = Net();
  trace.states[kOutput].bytes = trace.states[kOther].bytes = kPage;
  trace.states.push_back({.name = "second", .bytes = 4 * kPage});
  trace.steps = {{"make", {Read(kInput), Write(kOutput), Write(kOther)}, 0, true},
                 {"make other", {Write(kOther)}},
                 {"make second", {Read(kOther), Read(kOutput), Write(4)}, 0, true},
                 {"change", {Both(kOutput)}},
                 {"between", {Write(kLarge)}},
                 {"read second", {Read(4)}}};
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 3, 4, 5}));
  trace.steps[1].touches.clear();
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 3, 4, 0, 2, 5}));
}

// Either of two may run again, and the one that is tried first would spoil the other's input.
TEST(Recomputation, WhatIsTriedLeavesNothing) {
  AccessTrace trace = Net();
  trace.states[kOutput].bytes = trace.states[kOther].bytes = kPage;
  trace.states.push_back({.name = "second", .bytes = 4 * kPage});
  trace.steps = {{"make", {Read(kInput), Write(kOutput), Write(kOther)}, 0, true},
                 {"change", {Both(kOther)}},
                 {"make second", {Read(kOther), Write(4)}, 0, true},
                 {"between", {Write(kLarge)}},
                 {"read", {Read(kOutput)}},
                 {"read second", {Read(4)}}};
  EXPECT_EQ(OrderOf(trace), Order({0, 1, 2, 3, 4, 2, 5}));
}

// Of 64 equal layers the device holds 22, the last, whose forward is about to begin, among them.
// Copying one takes as long as three forwards, so since the first was made 20 have left.  The other
// 22 run again: 4 ms each, where waiting for one more to leave would take 4 ms and save 4 ms.
TEST(Recomputation, NoMoreThanAnyPlanMust) {
  constexpr int kLayers = 64, kHeld = 22;
  AccessTrace trace;
  for (int i = 0; i < kLayers; ++i) {
    trace.states.push_back({.name = "output", .bytes = kPage});
    trace.steps.push_back({"forward", {Write(i)}, 0.004, /*repeatable=*/true});
    if (i > 0) trace.steps.back().touches.push_back(Read(i - 1));
  }
  for (int i = kLayers - 1; i >= 0; --i) trace.steps.push_back({"backward", {Read(i)}, 0.008});
  const PagingPlan plan = *PlanPaging(
      trace, {.to_device_bytes_per_s = kPage / 0.012, .to_host_bytes_per_s = kPage / 0.012},
      {.capacity_bytes = kHeld * kPage});
  EXPECT_EQ(plan.order.size(), 2 * kLayers + 22);
  EXPECT_NEAR(plan.seconds, kLayers * 0.012 + 22 * 0.004, 1e-9);
}

}  // namespace
}  // namespace gyre
