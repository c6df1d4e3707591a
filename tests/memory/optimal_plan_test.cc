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
  EXPECT_GE(worst, 1.05) << "the solver finds nothing better";
  EXPECT_GE(proven, kNets * 95 / 100);
}

}  // namespace
}  // namespace gyre
