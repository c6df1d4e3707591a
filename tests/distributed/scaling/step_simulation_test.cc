// Steps of several ranks whose sums take what they are told: by hand, and within bounds.

#include "distributed/scaling/step_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace gyre {
namespace {

constexpr StepSchedule kSchedules[] = {StepSchedule::kNone, StepSchedule::kBackward,
                                       StepSchedule::kForward};

// Two layers of 1 s forward and 2 s backward, with a bucket each.
Workload TwoLayers() {
  Workload workload{.layers = {{1, 2}, {1, 2}}, .gradients = {{8, 1}, {8, 0}}};
  return workload;
}

StepSimulation Of(const Workload& workload, std::vector<StepSimulation::BucketSum> sums,
                  StepSchedule schedule = StepSchedule::kForward) {
  return {.buckets = workload.gradients, .sums = std::move(sums), .schedule = schedule};
}

TEST(StepSimulation, WithoutSumsItIsTheComputation) {
  Workload workload = TwoLayers();
  workload.update_s = 0.5;
  for (const StepSchedule schedule : kSchedules) {
    EXPECT_DOUBLE_EQ(StepSeconds(workload, Of(workload, {{}, {}}, schedule)), 6.5);
  }
}

// Backward completes the second layer's bucket first; the next forward waits for it, too, before
// its first layer where one node has both, and hides nothing of it.
TEST(StepSimulation, ForwardWaitsBeforeTheFirstReader) {
  Workload workload = TwoLayers();
  const std::vector<StepSimulation::BucketSum> sums = {{.link_s = 2.5}, {}};
  EXPECT_DOUBLE_EQ(StepSeconds(workload, Of(workload, sums)), 6);
  workload.gradients[0].first_reader = 0;
  EXPECT_DOUBLE_EQ(StepSeconds(workload, Of(workload, sums)), 6.5);
}

// seconds   0   2    4      6        9   10   11
// backward      layer 1, layer 0
// sums               1------.......--        (from 4; layer 0's from 6 to 9 goes ahead)
// forward                           0    1
TEST(StepSimulation, HandComputed) {
  const Workload workload = TwoLayers();
  const std::vector<StepSimulation::BucketSum> sums = {{0, 3}, {0, 3}};
  EXPECT_DOUBLE_EQ(StepSeconds(workload, Of(workload, sums, StepSchedule::kNone)), 12);
  // Sums from 4 to 7 and 7 to 10, then 2 s of forward.
  EXPECT_DOUBLE_EQ(StepSeconds(workload, Of(workload, sums, StepSchedule::kBackward)), 10);
  EXPECT_DOUBLE_EQ(StepSeconds(workload, Of(workload, sums, StepSchedule::kForward)), 9);
}

// Layer 1's sum is there when layer 0's backward ends: its update comes then.
TEST(StepSimulation, UpdatesOnArrival) {
  Workload workload = TwoLayers();
  workload.update_s = 2;
  // Backward to 2 and to 4, layer 1's update to 5, while layer 0's sum goes to 6; its update to 7,
  // forward to 9.
  const std::vector<StepSimulation::BucketSum> sums = {{0, 1}, {0, 2}};
  EXPECT_DOUBLE_EQ(StepSeconds(workload, Of(workload, sums)), 9);
  EXPECT_DOUBLE_EQ(StepSeconds(workload, Of(workload, sums, StepSchedule::kBackward)), 10);
}

TEST(StepSimulation, SumsWaitForTheSlowest) {
  const Workload workload = TwoLayers();
  StepSimulation simulation = Of(workload, {{0, 0}, {0, 0}}, StepSchedule::kNone);
  simulation.ranks = 3;
  simulation.stragglers.slowest = 2;
  EXPECT_DOUBLE_EQ(StepSeconds(workload, simulation), 12);
}

// The mean of the largest of n exponential deviates is 1 + 1/2 + ... + 1/n.
TEST(StepSimulation, JitterCostsTheLargestOfAllRanks) {
  const Workload workload{.layers = {{1, 2}}, .gradients = {{8, 0}}};
  for (const int ranks : {1, 2, 8, 64}) {
    StepSimulation simulation = Of(workload, {{0, 0}});
    simulation.ranks = ranks;
    simulation.stragglers = {.jitter = 0.1, .seed = 7};
    simulation.steps = 4000;
    double harmonic = 0, variance = 0;
    for (int k = 1; k <= ranks; ++k) {
      harmonic += 1.0 / k;
      variance += 1.0 / k / k;
    }
    // Four deviations of the mean over 3000 steps.
    EXPECT_NEAR(StepSeconds(workload, simulation), 3 * (1 + 0.1 * harmonic),
                3 * 0.1 * 4 * std::sqrt(variance / 3000));
    const double once = StepSeconds(workload, simulation);
    EXPECT_EQ(StepSeconds(workload, simulation), once);
    ++simulation.stragglers.seed;
    EXPECT_NE(StepSeconds(workload, simulation), once);
  }
}

TEST(StepSimulation, OfAServerAStragglerIsWaitedForUnlessAsynchronous) {
  const Workload workload = TwoLayers();
  StepSimulation simulation = Of(workload, {{0, 0}, {0, 0}});
  simulation.ranks = 2;
  simulation.served = true;
  simulation.stragglers.slowest = 2;
  simulation.steps = 200;
  for (const int staleness : {0, 1, 3}) {
    simulation.staleness = staleness;
    EXPECT_DOUBLE_EQ(StepSeconds(workload, simulation), 12) << staleness;
  }
  simulation.staleness.reset();  // 1/6 and 1/12 steps a second
  EXPECT_DOUBLE_EQ(StepSeconds(workload, simulation), 8);
}

// Rank 0 ends its steps at 2, 4, 6 and 8 s, and rank 1 begins step c once that has ended step
// c - 1 - staleness: it ends its own at 1 and, of a staleness of 0, 3, 5, 7; of 1, 2, 3, 5; of 2,
// 2, 3, 4.  The three last ones count.
TEST(StepSimulation, OfAServerRanksAreSoManyStepsApart) {
  const Workload workload{.layers = {{0, 1}}, .gradients = {{8, 0}}};
  StepSimulation simulation = Of(workload, {{0, 0}});
  simulation.ranks = 2;
  simulation.served = true;
  simulation.stragglers.slowest = 2;
  simulation.steps = 4;
  const double last_three[] = {6, 4, 3};
  for (int staleness = 0; staleness < 3; ++staleness) {
    simulation.staleness = staleness;
    EXPECT_DOUBLE_EQ(StepSeconds(workload, simulation), 2 / (3 / 6.0 + 3 / last_three[staleness]));
  }
}

TEST(StepSimulation, BulkSynchronousServersAreSums) {
  const Workload workload = TwoLayers();
  StepSimulation simulation = Of(workload, {{0.5, 3}, {0.25, 3}});
  simulation.ranks = 4;
  const double summed = StepSeconds(workload, simulation);
  simulation.served = true;
  EXPECT_DOUBLE_EQ(StepSeconds(workload, simulation), summed);
}

// Over random nets: nothing is faster than computation or link, and no schedule slower than none;
// what is allowed to be staler is no slower.
TEST(StepSimulation, StaysWithinItsBounds) {
  std::mt19937 random(3);
  const auto some = [&] { return static_cast<double>(random() % 1000) / 100; };
  for (int round = 0; round < 100; ++round) {
    Workload workload;
    const int layers = static_cast<int>(random() % 12) + 1;
    for (int l = 0; l < layers; ++l) workload.layers.push_back({some(), some()});
    for (int l = layers - 1; l >= 0; --l) {
      for (size_t g = random() % 3; g > 0; --g) {
        workload.gradients.push_back({random() % 100 + 1, l});
      }
    }
    if (workload.gradients.empty()) workload.gradients.push_back({5, 0});
    workload.update_s = round % 2 == 0 ? 0 : some();
    StepSimulation simulation{.ranks = 3, .buckets = workload.gradients};
    const double slow = some() / 4;
    double link = 0, starts = 0;
    for (const WorkloadGradient& bucket : simulation.buckets) {
      simulation.sums.push_back({some() / 20, slow * bucket.bytes / 20});
      link += simulation.sums.back().link_s;
      starts += simulation.sums.back().start_s;
    }
    EXPECT_GE(SumsSeconds(simulation) * (1 + 1e-12), link);
    EXPECT_LE(SumsSeconds(simulation), (link + starts) * (1 + 1e-12));
    for (const StepSchedule schedule : kSchedules) {
      simulation.schedule = schedule;
      const double seconds = StepSeconds(workload, simulation);
      EXPECT_GE(seconds * (1 + 1e-9), std::max(workload.step_s(), link)) << round;
      EXPECT_LE(seconds, (workload.step_s() + link + starts) * (1 + 1e-9)) << round;
    }
    simulation.stragglers.jitter = 0.5;
    simulation.served = true;
    simulation.steps = 60;
    double before = StepSeconds(workload, simulation);
    for (const int staleness : {1, 2, 8}) {
      simulation.staleness = staleness;
      const double seconds = StepSeconds(workload, simulation);
      // What is counted are steps of each rank: those ahead at the beginning may be less so at the
      // end, by as many steps as they may be apart.
      EXPECT_LE(seconds, before * (1 + staleness / 45.0)) << round;
      before = seconds;
    }
  }
}

}  // namespace
}  // namespace gyre
