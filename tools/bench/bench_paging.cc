// bench_paging: what paging costs an iteration, planned and run.  A net of layers, equal or not,
// each of which leaves bytes for backward, on `sim`, whose copies are throttled; the layers' work
// is slept, so that it and the copies do not take each other's core.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "memory/planner/paging_plan.h"
#include "tools/bench/bench.h"
#include "tools/bench/paged_iteration.h"

ABSL_FLAG(int, layers, 64, "Layers of the net.");
ABSL_FLAG(int, layer_kib, 256,
          "KiB that a layer saves for backward, a multiple of 4.  Unequal layers: the mean.");
ABSL_FLAG(
    double, layer_ms, 4,
    "Milliseconds of a layer's forward.  Backward takes twice that.  Unequal layers: the mean.");
ABSL_FLAG(std::vector<std::string>, unequal, {},
          "Seeds of nets of unequal layers, one a net.  Default: equal layers.");
ABSL_FLAG(bool, repeatable, false, "Let layers' forward run again.");
ABSL_FLAG(std::vector<std::string>, kappa, (std::vector<std::string>{"0.5", "1", "2", "3"}),
          "Time to copy all saved bytes, over that of forward.");
ABSL_FLAG(std::vector<std::string>, capacity,
          (std::vector<std::string>{"0.25", "0.35", "0.5", "0.7"}),
          "Shares of the saved bytes that the device holds.");
ABSL_FLAG(std::vector<std::string>, plan_steps, {},
          "Steps of unequal nets to plan without running.  Default: nets run.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures training beyond the memory of a simulated device.\n"
    "\n"
    "  bench_paging --kappa=2,3 --capacity=0.35\n"
    "\n"
    "Prints a JSON line for each net, kappa, capacity and planner, with milliseconds\n"
    "of an iteration, predicted and measured, and\n"
    "  least_capacity  share of memory that the planner needs (no times if more)\n"
    "  resident_ms     milliseconds with all in memory\n"
    "  bound_ms        least of any plan: the longer of forward and copies out, plus\n"
    "                  the longer of backward (with what runs again) and copies in\n"
    "  plan_seconds    time of planning, with --plan_steps. Nothing runs\n"
    "Predictions know what waking a thread adds to a step with all in memory. With\n"
    "--page_activations of 16 bits the bound is of half the bytes, and kappa of all.\n"
    "Bytes and times of unequal layers vary 16 times, independently.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Nets", {"layers", "layer_kib", "layer_ms", "unequal", "repeatable"}},
    {"Paging", {"kappa", "capacity", "planners", "page_activations", "replay"}},
    {"Measuring", {"rounds", "plan_steps"}},
};

AccessTrace EqualLayers(int layers, size_t bytes, double seconds) {
  AccessTrace trace;
  for (int i = 0; i < layers; ++i) {
    trace.states.push_back({.name = absl::StrCat("output ", i), .bytes = bytes});
    trace.steps.push_back({.name = absl::StrCat("forward ", i), .seconds = seconds});
    trace.steps.back().touches.push_back({i, false, true});
    if (i > 0) trace.steps.back().touches.push_back({i - 1, true, false});
  }
  for (int i = layers - 1; i >= 0; --i) {
    trace.steps.push_back({.name = absl::StrCat("backward ", i), .seconds = 2 * seconds});
    trace.steps.back().touches.push_back({i, true, false});
  }
  return trace;
}

// Bytes, and independently seconds, of which the logarithms are uniform over a factor of 16.
// Backward reads what the layer made and what it made it from.
AccessTrace UnequalLayers(uint64_t seed, int layers, size_t bytes, double seconds) {
  std::mt19937_64 rng(seed);
  const auto spread = [&rng] { return std::exp2(4 * static_cast<double>(rng() >> 11) * 0x1p-53); };
  const double mean = 15 / (4 * std::log(2.0));  // of spread
  AccessTrace trace = EqualLayers(layers, bytes, seconds);
  double sum = 0;
  for (int i = 0; i < layers; ++i) {
    const double pages = static_cast<double>(bytes) / kPlanAlignment * spread() / mean;
    trace.states[i].bytes = kPlanAlignment * static_cast<size_t>(std::ceil(pages));
    sum += trace.steps[i].seconds = spread();
  }
  for (int i = 0; i < layers; ++i) {
    TraceStep& forward = trace.steps[i];
    TraceStep& backward = trace.steps[2 * layers - 1 - i];
    forward.seconds *= seconds * layers / sum;
    backward.seconds = 2 * forward.seconds;
    if (i > 0) backward.touches.push_back({i - 1, true, false});
  }
  return trace;
}

struct SyntheticNet {
  AccessTrace work;   // that is slept
  AccessTrace trace;  // and that is planned: with waking
  int layers = 0;
  double bytes = 0, forward = 0;  // of all layers; seconds
  PagingFlags flags;
};

// The least that an iteration can take.  When the last layer's forward begins what it leaves has a
// place.  What the device cannot hold beside that has been copied since the first layer's forward,
// or runs again, of those that may the ones that take least time for their bytes.  When backward
// begins as much is away.  Of equal layers the device holds whole ones.
double Bound(const SyntheticNet& net, double share, double bandwidth) {
  const std::vector<TraceStep>& steps = net.work.steps;
  const auto all_of = [&](int first, int beyond) {
    return std::accumulate(steps.begin() + first, steps.begin() + beyond, 0.0,
                           [](double sum, const TraceStep& step) { return sum + step.seconds; });
  };
  const double between = all_of(1, net.layers - 1);
  const double backward = all_of(net.layers, 2 * net.layers);
  const auto layer = static_cast<double>(net.work.states[0].bytes);
  const bool equal = std::ranges::all_of(net.work.states, [&](const TraceState& state) {
    return state.bytes == net.work.states[0].bytes;
  });
  const double holds = equal ? std::floor(share * net.bytes / layer) * layer : share * net.bytes;
  const int parts = equal ? 1 : 100;  // of an unequal layer: as fine as the result is to be
  std::vector<int> layers(net.layers);
  std::iota(layers.begin(), layers.end(), 0);
  std::erase_if(layers, [&](int i) { return !net.work.steps[i].repeatable; });
  std::ranges::sort(layers, {}, [&](int i) {
    return net.work.steps[i].seconds / static_cast<double>(net.work.states[i].bytes);
  });
  double leaves = std::max(0.0, net.bytes - holds) / bandwidth, again = 0;
  const auto bound = [&] {
    return steps[0].seconds + std::max(between, leaves) + steps[net.layers - 1].seconds +
           std::max(backward + again, leaves);
  };
  double best = bound();
  for (const int i : layers) {
    const double copied = static_cast<double>(net.work.states[i].bytes) / bandwidth / parts;
    for (int part = 0; part < parts && leaves > 0; ++part) {
      leaves = std::max(0.0, leaves - copied);
      again += net.work.steps[i].seconds / parts;
      best = std::min(best, bound());
    }
  }
  return best;
}

// report: of the net, what holds for each planner.
absl::Status MeasurePlanner(const SyntheticNet& net, const NamedPlanner& named, double bandwidth,
                            double share, double resident, double bound,
                            nlohmann::ordered_json report) {
  const auto& [name, planner] = named;
  const auto least = static_cast<double>(FindLargestStep(net.trace, nullptr, planner).bytes);
  report.update({{"planner", name}, {"least_capacity", least / net.bytes}});
  PagingCosts costs = {.to_device_bytes_per_s = bandwidth, .to_host_bytes_per_s = bandwidth};
  if (net.flags.page_activations != DType::kF32) {
    ASSIGN_OR_RETURN(costs.convert_bytes_per_s, ConvertBytesPerSecond(net.flags.page_activations));
  }
  const absl::StatusOr<PagingPlan> plan =
      PlanPaging(net.trace, costs,
                 {.capacity_bytes = static_cast<size_t>(share * net.bytes),
                  .self_contained = net.flags.replay},
                 planner);
  if (plan.ok()) {
    ASSIGN_OR_RETURN(
        const double measured,
        RunPagedIterations(net.work, *plan, net.flags.rounds,
                           {.copies = bandwidth, .page_activations = net.flags.page_activations}));
    double runs = 0;
    for (const int step : plan->order) runs += net.work.steps[step].seconds;
    report.update({{"fetched_bytes", plan->fetched_bytes},
                   {"written_bytes", plan->written_bytes},
                   {"steps_again", plan->order.size() - net.trace.steps.size()},
                   {"again_ms", (runs - 3 * net.forward) * 1000},
                   {"resident_ms", resident * 1000},
                   {"bound_ms", bound * 1000},
                   {"predicted_ms", plan->seconds * 1000},
                   {"measured_ms", measured * 1000},
                   {"kept_of_resident", resident / measured},
                   {"kept_of_bound", bound / measured}});
  } else if (!absl::IsResourceExhausted(plan.status())) {
    return plan.status();
  }
  PrintRow(report);
  return absl::OkStatus();
}

// report: what says which net it is.
absl::Status MeasureNet(AccessTrace work, int layers, const PagingFlags& flags,
                        const nlohmann::ordered_json& report, const std::vector<double>& kappas,
                        const std::vector<double>& shares) {
  SyntheticNet net = {.work = std::move(work), .trace = {}, .layers = layers, .flags = flags};
  for (int i = 0; i < layers; ++i) {
    net.work.steps[i].repeatable = absl::GetFlag(FLAGS_repeatable);
  }
  for (const TraceState& state : net.work.states) net.bytes += static_cast<double>(state.bytes);
  for (int i = 0; i < layers; ++i) net.forward += net.work.steps[i].seconds;
  ASSIGN_OR_RETURN(const PagingPlan whole,
                   PlanPaging(net.work, {}, {.capacity_bytes = static_cast<size_t>(net.bytes)}));
  ASSIGN_OR_RETURN(const double resident, RunPagedIterations(net.work, whole, flags.rounds, {}));
  net.trace = WithWaking(net.work, resident);
  for (TraceState& state : net.trace.states)
    state.may_narrow = net.flags.page_activations != DType::kF32;
  for (const double kappa : kappas) {
    for (const double share : shares) {
      const double bandwidth = net.bytes / (kappa * net.forward);
      const double bound =
          Bound(net, share, (net.flags.page_activations == DType::kF32 ? 1 : 2) * bandwidth);
      nlohmann::ordered_json line = report;
      line.update({{"kappa", kappa}, {"capacity", share}});
      for (const NamedPlanner& planner : flags.planners) {
        RETURN_IF_ERROR(MeasurePlanner(net, planner, bandwidth, share, resident, bound, line));
      }
    }
  }
  return absl::OkStatus();
}

// Of nets of so many steps, half of them layers' forward, for each kappa and capacity.
absl::Status MeasurePlanning(const std::vector<double>& steps, const PagingFlags& flags,
                             size_t bytes, double seconds, const std::vector<double>& kappas,
                             const std::vector<double>& shares) {
  for (const double count : steps) {
    const int layers = static_cast<int>(count / 2);
    RETURN_IF_ERROR(CheckLeast(4, {FlagNumber("plan_steps", count)}));
    AccessTrace trace = UnequalLayers(/*seed=*/1, layers, bytes, seconds);
    double all = 0;
    for (const TraceState& state : trace.states) all += static_cast<double>(state.bytes);
    for (int i = 0; i < layers; ++i) trace.steps[i].repeatable = absl::GetFlag(FLAGS_repeatable);
    for (const double kappa : kappas) {
      for (const double share : shares) {
        const double bandwidth = all / (kappa * seconds * layers);
        const BenchClock::time_point start = BenchClock::now();
        ASSIGN_OR_RETURN(
            const PagingPlan plan,
            PlanPaging(trace,
                       {.to_device_bytes_per_s = bandwidth, .to_host_bytes_per_s = bandwidth},
                       {.capacity_bytes = static_cast<size_t>(share * all),
                        .self_contained = flags.replay}));
        PrintRow({{"steps", trace.steps.size()},
                  {"repeatable", absl::GetFlag(FLAGS_repeatable)},
                  {"kappa", kappa},
                  {"capacity", share},
                  {"plan_seconds", SecondsSince(start)},
                  {"predicted_ms", plan.seconds * 1000}});
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Run() {
  const int layers = absl::GetFlag(FLAGS_layers), kib = absl::GetFlag(FLAGS_layer_kib);
  RETURN_IF_ERROR(CheckLeast(2, {FLAGS_layers}));
  RETURN_IF_ERROR(CheckLeast(4, {FLAGS_layer_kib}));
  RETURN_IF_ERROR(CheckValue(kib % 4 == 0, "layer_kib", kib, "a multiple of 4"));
  RETURN_IF_ERROR(CheckPositive({FLAGS_layer_ms}));
  ASSIGN_OR_RETURN(const PagingFlags flags, ReadPagingFlags());
  ASSIGN_OR_RETURN(const std::vector<double> kappas,
                   PositiveNumbers("kappa", absl::GetFlag(FLAGS_kappa)));
  ASSIGN_OR_RETURN(const std::vector<double> shares,
                   PositiveNumbers("capacity", absl::GetFlag(FLAGS_capacity)));
  const size_t bytes = static_cast<size_t>(kib) << 10;
  const double seconds = absl::GetFlag(FLAGS_layer_ms) / 1000;
  ASSIGN_OR_RETURN(const std::vector<double> steps,
                   PositiveNumbers("plan_steps", absl::GetFlag(FLAGS_plan_steps)));
  if (!steps.empty()) return MeasurePlanning(steps, flags, bytes, seconds, kappas, shares);
  if (absl::GetFlag(FLAGS_unequal).empty()) {
    return MeasureNet(EqualLayers(layers, bytes, seconds), layers, flags, {}, kappas, shares);
  }
  for (const std::string& text : absl::GetFlag(FLAGS_unequal)) {
    uint64_t seed = 0;
    RETURN_IF_ERROR(
        CheckValue(absl::SimpleAtoi(text, &seed), "unequal", text, "0 or a positive number"));
    RETURN_IF_ERROR(MeasureNet(UnequalLayers(seed, layers, bytes, seconds), layers, flags,
                               {{"unequal", seed}}, kappas, shares));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Run);
}
