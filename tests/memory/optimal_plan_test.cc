// How far plans of paging are from the fastest there could be, on small nets.

#include "tests/memory/optimal_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "memory/resident/memory_plan.h"
#include "tests/memory/random_trace.h"

namespace gyre {
namespace {

constexpr int kNets = 200;
constexpr int64_t kMostNodes = 2'000'000;
constexpr size_t kPage = kPlanAlignment;

// 2 to 6 unequal layers, some of which read what one long before them made.
AccessTrace SmallNet(std::mt19937_64& rng, int layers) {
  AccessTrace trace = TrainingTrace(rng(), layers);
  const auto below = [&rng](int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); };
  for (TraceStep& step : trace.steps) step.repeatable = false;
  for (int i = 0; i < layers; ++i) {
    TraceStep &forward = trace.steps[i], &backward = trace.steps[2 * layers - 1 - i];
    forward.seconds = 1e-6 * (1 + below(100));
    backward.seconds = forward.seconds * (1.5 + 0.01 * below(100));
    if (i < 2 || below(4) > 0) continue;
    const TraceTouch skip = {3 * below(i - 1), true, false};  // an output
    forward.touches.push_back(skip);
    if (below(2) == 0) backward.touches.push_back(skip);
  }
  return trace;
}

TEST(OptimalPlan, PlansAreCloseToIt) {
  std::vector<double> ratios;
  int proven = 0;
  for (int i = 0; i < kNets; ++i) {
    SCOPED_TRACE(i);
    std::mt19937_64 rng(1000 + static_cast<uint64_t>(i));
    const int layers = 2 + static_cast<int>(rng() % 5);
    const AccessTrace trace = SmallNet(rng, layers);
    const size_t least = FindLargestStep(trace).bytes;
    const size_t most = PlanMemory(trace, ~size_t{0})->device_bytes;
    const double share = std::vector<double>{0, 0.05, 0.15, 0.3, 0.5, 0.7}[rng() % 6];
    const size_t capacity = least + static_cast<size_t>(share * static_cast<double>(most - least));
    // Seconds of all outputs' copies, by those of the forward pass.
    const double kappa = std::vector<double>{0.25, 0.5, 1, 2, 3, 6}[rng() % 6];
    double bytes = 0, forward = 0;
    for (int layer = 0; layer < layers; ++layer) {
      bytes += static_cast<double>(trace.states[3 * layer].bytes);
      forward += trace.steps[layer].seconds;
    }
    const double bandwidth = bytes / (kappa * forward);
    const PagingCosts costs = {.to_device_bytes_per_s = bandwidth,
                               .to_host_bytes_per_s = bandwidth};
    const absl::StatusOr<PagingPlan> plan = PlanPaging(trace, costs, {.capacity_bytes = capacity});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const OptimalPlan optimal = FindOptimalPlan(trace, costs, capacity, plan->seconds, kMostNodes);
    proven += optimal.proven;
    ratios.push_back(plan->seconds / optimal.seconds);
  }
  std::ranges::sort(ratios);
  const double median = ratios[kNets / 2], worst = ratios.back();
  printf(
      "time by the optimal: median %.4f, 90 %% below %.4f, 99 %% below %.4f, worst %.4f; "
      "%d of %d proven\n",
      median, ratios[kNets * 9 / 10], ratios[kNets * 99 / 100], worst, proven, kNets);
  EXPECT_LE(median, 1.03);
  EXPECT_LE(worst, 1.15);
  EXPECT_GE(proven, kNets * 95 / 100);
}

// Three steps, each a second; a page takes one, either way.
AccessTrace ThreeSteps(bool read_again) {
  AccessTrace trace;
  trace.states = {{.name = "kept", .bytes = kPage}, {.name = "large", .bytes = 2 * kPage}};
  trace.steps = {{.name = "a", .touches = {{0, false, true}}, .seconds = 1},
                 {.name = "b", .touches = {{1, false, true}}, .seconds = 1},
                 {.name = "c", .touches = {{0, read_again, !read_again}}, .seconds = 1}};
  return trace;
}

// By hand: the write-back, b, the fetch, c, one after another behind a.
TEST(OptimalPlan, OfThreeSteps) {
  const PagingCosts costs = {.to_device_bytes_per_s = kPage, .to_host_bytes_per_s = kPage};
  EXPECT_DOUBLE_EQ(FindOptimalPlan(ThreeSteps(true), costs, 2 * kPage, 100, kMostNodes).seconds, 5);
  EXPECT_DOUBLE_EQ(FindOptimalPlan(ThreeSteps(true), costs, 3 * kPage, 100, kMostNodes).seconds, 3);
  // What is written anew is not copied.
  EXPECT_DOUBLE_EQ(FindOptimalPlan(ThreeSteps(false), costs, 2 * kPage, 100, kMostNodes).seconds,
                   3);
}

// It leaves step by step: an iteration's last write-back is waited for in the next.
TEST(OptimalPlan, WaitsForTheIterationBefore) {
  AccessTrace trace;
  trace.states = {{.name = "parameter", .bytes = kPage, .persistent = true},
                  {.name = "large", .bytes = 2 * kPage}};
  trace.steps = {{.name = "a", .touches = {{0, true, true}}, .seconds = 1},
                 {.name = "b", .touches = {{1, false, true}}, .seconds = 1}};
  const PagingCosts costs = {.to_device_bytes_per_s = kPage, .to_host_bytes_per_s = kPage};
  // Fetch, a, write-back, b; with room for both b hides the write-back, or it stays.
  EXPECT_DOUBLE_EQ(FindOptimalPlan(trace, costs, 2 * kPage, 100, kMostNodes).seconds, 4);
  EXPECT_DOUBLE_EQ(FindOptimalPlan(trace, costs, 3 * kPage, 100, kMostNodes).seconds, 2);
}

TEST(OptimalPlan, SaysThatItGaveUp) {
  const PagingCosts costs = {.to_device_bytes_per_s = kPage, .to_host_bytes_per_s = kPage};
  const OptimalPlan plan = FindOptimalPlan(ThreeSteps(true), costs, 2 * kPage, 100, 1);
  EXPECT_FALSE(plan.proven);
  EXPECT_DOUBLE_EQ(plan.seconds, 100);
}

}  // namespace
}  // namespace gyre
