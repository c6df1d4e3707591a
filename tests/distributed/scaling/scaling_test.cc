// What training is expected to reach: closed forms, what was measured, errors.

#include "distributed/scaling/scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr double kAlpha = 30e-6, kByte = 8e-9;

SumCosts Costs(std::string_view calibration = "", double added_byte = 0) {
  const LinkCosts links = {
      .start_between = kAlpha, .byte_between = kByte, .each = 0, .added_byte = added_byte};
  const auto costs = SumCosts::Create(links, calibration);
  GYRE_CHECK(costs.ok());
  return *costs;
}

ScalingPoint Simulate(const Workload& workload, const ScalingSetup& setup, int ranks,
                      const SumCosts& costs = Costs()) {
  const auto point = SimulateScaling(workload, costs, setup, ranks);
  GYRE_CHECK(point.ok());
  return *point;
}

// One bucket and nothing to compute: what the algorithm takes.
TEST(Scaling, ASumAlone) {
  const double S = 1e6, gamma = 0.3e-9;
  const Workload workload = EqualLayers(1, 0, 0, S);
  const auto step = [&](const char* algorithm, int ranks, int of_host = 1) {
    return Simulate(workload, {.ranks_per_host = of_host, .algorithm = algorithm}, ranks,
                    Costs("", gamma))
        .step;
  };
  for (const double n : {2, 5, 64, 8192}) {
    const int ranks = static_cast<int>(n);
    const double sent = 2 * (n - 1) / n * S * kByte, added = (n - 1) / n * S * gamma;
    EXPECT_NEAR(step("ring", ranks), 2 * (n - 1) * kAlpha + sent + added, 1e-12 * n);
    EXPECT_NEAR(step("direct", ranks), 2 * kAlpha + sent + added, 1e-12);
    const double lg = std::ceil(std::log2(n));
    EXPECT_NEAR(step("halving_doubling", ranks), 2 * lg * kAlpha + sent + added, 1e-12);
    EXPECT_NEAR(step("recursive_doubling", ranks), lg * (kAlpha + S * (kByte + gamma)), 1e-12);
    EXPECT_NEAR(step("naive", ranks), 2 * kAlpha + (n - 1) * S * (kByte + gamma), 1e-11 * n);
  }
  // A host's ranks share its link: 2 (H - 1) / H S, and for who does not know 2 p (n - p) / n S.
  EXPECT_NEAR(step("hierarchical", 8, 4),
              5 * 0.5e-6 + 2 * S * 0.15e-9 + 2 * kAlpha + S * kByte + S / 2 * gamma, 1e-12);
  EXPECT_NEAR(step("direct", 8, 4), 2 * kAlpha + 4 * S * kByte + 7 / 8.0 * S * gamma, 1e-12);
}

TEST(Scaling, OneRankIsAlone) {
  const Workload workload = EqualLayers(10, 0.3, 0.02, 1e8);
  const ScalingPoint point = Simulate(workload, {.copied_bytes_per_s = 1e6}, 1);
  EXPECT_NEAR(point.step, 0.3, 1e-12);
  EXPECT_DOUBLE_EQ(point.alone, 0.3);
  EXPECT_NEAR(point.efficiency, 1, 1e-12);
  EXPECT_EQ(point.sums, 0);
}

// k = 0: direct's; from k = n on the bytes once.
TEST(Scaling, Servers) {
  const double S = 1e6;
  const Workload workload = EqualLayers(1, 0, 0, S);
  ScalingSetup setup{.sync = SyncMode::kBsp};
  EXPECT_NEAR(Simulate(workload, setup, 4).step, 2 * kAlpha + 1.5 * S * kByte, 1e-12);
  for (const int servers : {4, 6}) {
    setup.servers = servers;
    EXPECT_NEAR(Simulate(workload, setup, 4 + servers).step, 2 * kAlpha + S * kByte, 1e-12);
  }
  setup.servers = 2;  // n = 4: a worker owns 7 / 58 and sends 1 + 2 * 7 / 58 (tables_test.cc)
  EXPECT_NEAR(Simulate(workload, setup, 6).step, 2 * kAlpha + 72 / 58.0 * S * kByte, 1e-12);
  // Ranks that serve make no samples.
  const ScalingPoint point = Simulate(EqualLayers(1, 1, 0, 1), setup, 6);
  EXPECT_NEAR(point.samples_per_second, 4, 1e-3);
  EXPECT_NEAR(point.efficiency, 4 / 6.0, 1e-3);
}

TEST(Scaling, PagesAndGradientsShareTheWay) {
  Workload workload = EqualLayers(1, 1, 0, 1e9);
  const SumCosts costs = *SumCosts::Create({.start_between = 0, .byte_between = 0, .each = 0}, "");
  ScalingSetup setup{.algorithm = "ring", .copied_bytes_per_s = 10e9};
  // 0.1 s, and a segment of 4 MiB out and one back.
  const double segment = 2 * (4 << 20) / 10e9;
  EXPECT_NEAR(Simulate(workload, setup, 2, costs).step, 1.1 + segment, 1e-9);
  workload.paged_in_bytes = 5e9;  // half the way
  EXPECT_NEAR(Simulate(workload, setup, 2, costs).step, 1.2 + 2 * segment, 1e-9);
  workload.paged_in_bytes = 30e9;
  EXPECT_GE(Simulate(workload, setup, 2, costs).step, 3.1);
}

constexpr char kMeasured[] = R"({"allreduce": [
    {"ranks": 4, "hosts": 4, "fastest": [{"from_bytes": 0, "algorithm": "ring"}],
     "costs": [{"algorithm": "ring", "start_us": 360, "byte_ns": 15}]},
    {"ranks": 2, "hosts": 1, "fastest": [{"from_bytes": 0, "algorithm": "shared"}]}]})";

// As measured there; elsewhere twice the model's starts, and 1.25 times its bytes.
TEST(Scaling, CalibrationPutsTheModelRight) {
  const SumCosts costs = Costs(kMeasured);
  EXPECT_DOUBLE_EQ(costs.Of("ring", {4, 4}).start_s, 360e-6);
  EXPECT_DOUBLE_EQ(costs.Of("ring", {4, 4}).byte_s, 15e-9);
  EXPECT_NEAR(costs.Of("ring", {8, 8}).start_s, 2 * 14 * kAlpha, 1e-12);
  EXPECT_NEAR(costs.Of("ring", {8, 8}).byte_s, 1.25 * 14 / 8 * kByte, 1e-16);
  // Of one host nothing was measured, nor was another algorithm.
  EXPECT_NEAR(costs.Of("ring", {8, 1}).byte_s, Costs().Of("ring", {8, 1}).byte_s, 1e-18);
  EXPECT_NEAR(costs.Of("direct", {8, 8}).byte_s, 14 / 8.0 * kByte, 1e-16);
  EXPECT_EQ(SumCosts::Create({}, "{").status().message(),
            "not what bench_allreduce --calibrate writes: no JSON");
}

TEST(Scaling, AutoIsTheFastest) {
  const SumCosts costs = Costs();
  EXPECT_EQ(costs.Fastest(4, {1024, 1024}), "direct");  // whose messages take nothing here
  EXPECT_EQ(costs.Fastest(1e8, {64, 8}), "hierarchical");
  const Workload workload = EqualLayers(1, 0, 0, 1e6);
  EXPECT_LE(Simulate(workload, {}, 64, costs).step,
            Simulate(workload, {.algorithm = "ring"}, 64, costs).step);
}

TEST(Scaling, SaysWhatDoesNotGo) {
  const Workload workload = EqualLayers(1, 1, 0, 1e6);
  const auto error = [&](const ScalingSetup& setup, int ranks) {
    return std::string(SimulateScaling(workload, Costs(), setup, ranks).status().message());
  };
  EXPECT_EQ(error({.sync = SyncMode::kBsp, .servers = 4}, 4),
            "servers: expected fewer than the 4 ranks, got 4");
  EXPECT_EQ(error({.algorithm = "shared"}, 4), "shared: does not sum over 4 ranks on 4 hosts");
  EXPECT_EQ(error({.ranks_per_host = 8, .algorithm = "hierarchical"}, 4),
            "hierarchical: does not sum over 4 ranks on 1 host");
}

TEST(FitEpoch, FindsTheLaw) {
  std::vector<ScalingPoint> points;
  for (int ranks = 1; ranks <= 1024; ranks *= 4) {
    const double epoch = (3 + 0.25 * std::log2(ranks)) / ranks;
    points.push_back({.ranks = ranks, .samples_per_second = 500 / epoch});
  }
  EpochFit fit = FitEpoch(points, 500);
  EXPECT_NEAR(fit.a_s, 3, 1e-12);
  EXPECT_NEAR(fit.b_s, 0.25, 1e-12);
  EXPECT_NEAR(fit.residual, 0, 1e-12);
  points.back().samples_per_second /= 1.1;
  fit = FitEpoch(points, 500);
  EXPECT_GT(fit.b_s, 0.25);
  EXPECT_GT(fit.residual, 0.005);
  EXPECT_LT(fit.residual, 0.1);
}

}  // namespace
}  // namespace gyre
