#include "distributed/scaling/sum_costs.h"

#include <algorithm>
#include <cmath>

#include "distributed/server_shards.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Of the sum model's lines: where they are cut, and how they rise.
constexpr double kManyBytes = 1e12;

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

}  // namespace gyre
