#include "distributed/scaling/scaling.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "distributed/server_shards.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Of the sum model's lines: where they are cut, and how they rise.
constexpr double kManyBytes = 1e12;

// A bucket's way through host memory goes in such segments, the first of which comes out, and the
// last of which goes back, while nothing is summed (engine/training/step/gradient_sync.cc).
constexpr size_t kStagedBytes = 4 << 20;

SumCost CostOf(const SumCosts& costs, const ScalingSetup& setup, ClusterShape shape, double bytes) {
  if (setup.sync != SyncMode::kAllreduce) return costs.OfServer(shape, setup.servers);
  return costs.Of(setup.algorithm == "auto" ? costs.Fastest(bytes, shape) : setup.algorithm, shape);
}

// What a byte on its way through host memory takes, beside pages that take a part of each step.
double CopiedByte(const Workload& workload, double bytes_per_s) {
  const double paged = std::max(workload.paged_in_bytes, workload.paged_out_bytes);
  const double step =
      std::max(workload.step_s(), (paged + workload.gradient_bytes()) / bytes_per_s);
  return 1 / (bytes_per_s - paged / step);
}

}  // namespace

absl::StatusOr<SumCosts> SumCosts::Create(const LinkCosts& links, std::string_view calibration) {
  SumCosts costs;
  costs.links_ = links;
  ASSIGN_OR_RETURN(costs.measured_, ReadCalibration(calibration));
  return costs;
}

SumCost SumCosts::Modelled(std::string_view algorithm, ClusterShape shape) const {
  if (shape.ranks == 1) return {};
  const auto seconds = [&](double bytes) { return SumSeconds(algorithm, bytes, shape, links_); };
  const double start = seconds(0);
  if (!std::isfinite(start)) return {.start_s = start};
  return {start, (seconds(kManyBytes) - start) / kManyBytes};
}

SumCost SumCosts::Of(std::string_view algorithm, ClusterShape shape) const {
  const SumCost model = Modelled(algorithm, shape);
  SumCost measured, modelled;  // added up over clusters
  for (const auto& [cluster, selector] : measured_) {
    const auto cost = std::ranges::find(selector.costs(), algorithm, &Selector::Cost::algorithm);
    if (cost == selector.costs().end() || (cluster.hosts == 1) != (shape.hosts == 1)) continue;
    if (cluster == shape) return {cost->start_s, cost->byte_s};
    const SumCost there = Modelled(algorithm, cluster);
    if (!std::isfinite(there.start_s)) continue;
    measured.start_s += cost->start_s;
    measured.byte_s += cost->byte_s;
    modelled.start_s += there.start_s;
    modelled.byte_s += there.byte_s;
  }
  if (modelled.byte_s == 0) return model;
  return {model.start_s * measured.start_s / modelled.start_s,
          model.byte_s * measured.byte_s / modelled.byte_s};
}

SumCost SumCosts::OfServer(ClusterShape shape, int dedicated) const {
  if (dedicated == 0) return Of("direct", shape);
  // A worker's bytes each way, 1 - w and (n - 1) w of S (server_shards.cc); nobody has more.  Of a
  // cluster of direct's, 2 (n - 1) / n.
  const int workers = shape.ranks - dedicated;
  const double own = (1 - dedicated * DedicatedFraction(workers, dedicated)) / workers;
  const double sent = 1 + (workers - 2) * own;
  const SumCost direct = Of("direct", shape);
  const double all = shape.ranks;
  return {direct.start_s, direct.byte_s * sent / (2 * (all - 1) / all)};
}

std::string_view SumCosts::Fastest(double bytes, ClusterShape shape) const {
  return *std::ranges::min_element(ChosenSums(), {}, [&](std::string_view name) {
    const SumCost cost = Of(name, shape);
    return cost.start_s + bytes * cost.byte_s;
  });
}

size_t SumCosts::WorthwhileBytes(std::string_view algorithm, ClusterShape shape) const {
  if (!measured_.empty()) {
    const auto here = std::ranges::find(measured_, shape, &MeasuredCluster::shape);
    return gyre::WorthwhileBytes(
        algorithm, here == measured_.end() ? Selector::Modelled(shape) : here->selector, shape);
  }
  const std::vector<Selector::Choice> choices =
      Selector::Of([&](double bytes) {
        return algorithm == "auto" ? Fastest(bytes, shape) : algorithm;
      }).choices();
  std::vector<Selector::Cost> costs;
  for (const Selector::Choice& choice : choices) {
    const SumCost cost = Of(choice.algorithm, shape);
    costs.push_back({choice.algorithm, cost.start_s, cost.byte_s});
  }
  return gyre::WorthwhileBytes("auto", Selector(choices, std::move(costs)), shape);
}

absl::StatusOr<ScalingPoint> SimulateScaling(const Workload& workload, const SumCosts& costs,
                                             const ScalingSetup& setup, int ranks) {
  const ClusterShape shape = {ranks, (ranks - 1) / setup.ranks_per_host + 1};
  const bool served = setup.sync != SyncMode::kAllreduce;
  const int workers = ranks - setup.servers;
  if (workers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("servers: expected fewer than the ", ranks, " ranks, got ", setup.servers));
  }
  StepSimulation simulation{.ranks = workers,
                            .buckets = workload.gradients,
                            .schedule = setup.schedule,
                            .served = served,
                            .stragglers = setup.stragglers,
                            .steps = setup.steps};
  if (setup.sync == SyncMode::kSsp) simulation.staleness = setup.staleness;
  if (setup.sync == SyncMode::kAsync) simulation.staleness.reset();
  if (ranks > 1) {
    const std::string algorithm = served ? "direct" : setup.algorithm;
    if (algorithm != "auto" && !std::isfinite(costs.Of(algorithm, shape).start_s)) {
      return absl::InvalidArgumentError(absl::StrCat(algorithm, ": does not sum over ", ranks,
                                                     " ranks on ", shape.hosts,
                                                     shape.hosts == 1 ? " host" : " hosts"));
    }
    if (!setup.bucket_a_gradient) {
      simulation.buckets = FitBuckets(workload, costs.WorthwhileBytes(algorithm, shape));
    }
  }
  StepSimulation free = simulation;
  free.sums.resize(simulation.buckets.size());
  const double gradient_bytes = workload.gradient_bytes();
  const double owners = setup.servers > 0 ? setup.servers : ranks;
  for (const WorkloadGradient& bucket : simulation.buckets) {
    const SumCost cost = ranks > 1 ? CostOf(costs, setup, shape, bucket.bytes) : SumCost{};
    StepSimulation::BucketSum& sum = simulation.sums.emplace_back();
    sum = {cost.start_s, cost.byte_s * bucket.bytes};
    if (served && gradient_bytes > 0) {  // what an owner updates
      sum.start_s += workload.update_s * bucket.bytes / gradient_bytes / owners;
    }
    if (setup.copied_bytes_per_s > 0 && ranks > 1) {
      const double byte_s = CopiedByte(workload, setup.copied_bytes_per_s);
      sum.start_s += 2 * std::min(bucket.bytes, kStagedBytes) * byte_s;
      sum.link_s = std::max(sum.link_s, bucket.bytes * byte_s);
    }
  }
  ScalingPoint point{.ranks = ranks,
                     .hosts = shape.hosts,
                     .buckets = static_cast<int>(simulation.buckets.size()),
                     .alone = workload.step_s(),
                     .sums = SumsSeconds(simulation)};
  point.step = StepSeconds(workload, simulation);
  const double without = StepSeconds(workload, free);
  if (setup.copied_bytes_per_s > 0 && ranks > 1) {  // pages and gradients share the way
    point.step = std::max(
        point.step, (std::max(workload.paged_in_bytes, workload.paged_out_bytes) + gradient_bytes) /
                        setup.copied_bytes_per_s);
  }
  point.exposed = point.step - without;
  // Where nobody waits the two differ by rounding alone.
  point.waiting = std::max(0.0, without - point.alone);
  point.efficiency = point.alone * (1 + setup.stragglers.jitter) * workers / ranks / point.step;
  point.samples_per_second = static_cast<double>(workload.samples) * workers / point.step;
  return point;
}

EpochFit FitEpoch(std::span<const ScalingPoint> points, double samples) {
  // y = a + b x, where x = log2 N, y = N T(N).
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  const auto log_ranks = [](const ScalingPoint& p) { return std::log2(p.ranks); };
  const auto epoch = [&](const ScalingPoint& p) { return samples / p.samples_per_second; };
  for (const ScalingPoint& p : points) {
    const double xi = log_ranks(p), yi = p.ranks * epoch(p);
    n += 1;
    x += xi;
    y += yi;
    xx += xi * xi;
    xy += xi * yi;
  }
  EpochFit fit;
  fit.b_s = (n * xy - x * y) / (n * xx - x * x);
  fit.a_s = (y - fit.b_s * x) / n;
  double squares = 0;
  for (const ScalingPoint& p : points) {
    const double error = (fit.a_s + fit.b_s * log_ranks(p)) / p.ranks / epoch(p) - 1;
    squares += error * error;
  }
  fit.residual = std::sqrt(squares / n);
  return fit;
}

}  // namespace gyre
