// bench_paging: what paging costs an iteration, planned and run on `sim`, whose copies are
// throttled. Of nets of layers, equal or not, each of which leaves bytes for backward, or of real
// nets as `train` plans them.  Steps sleep, so that they and the copies do not take each other's
// core.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/model/model.h"
#include "engine/training/model/page_speeds.h"
#include "memory/pager/pager.h"
#include "memory/planner/paging_plan.h"
#include "models/schema/parse.h"
#include "tools/bench/bench.h"

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
ABSL_FLAG(std::vector<std::string>, plan_steps, {},
          "Steps of unequal nets to plan without running.  Default: nets run.");
ABSL_FLAG(std::vector<std::string>, nets, {},
          "Text files of real nets, in place of layers.  Default: none.");
ABSL_FLAG(int, batch, 16, "Samples a step.");
ABSL_FLAG(double, flops, 3e11, "FLOPs a second of steps.");
ABSL_FLAG(double, copy_gb_s, 1.2, "10^9 bytes a second of copies, each way.");
ABSL_FLAG(double, host_gb_s, 10,
          "10^9 bytes a second that a host optimizer reads and writes.  0: no such optimizer.");
ABSL_FLAG(std::vector<std::string>, capacity,
          (std::vector<std::string>{"0.25", "0.35", "0.5", "0.7"}),
          "Shares of all states, each in memory of its own, that the device holds.");
ABSL_FLAG(std::vector<std::string>, planners, {"auto"},
          "Paging planners: auto, geeps (GeePS's algorithm), naive (no copy overlaps a layer).");
ABSL_FLAG(std::string, page_activations, "F32",
          "Type of activations while paged: F32, or F16 or BF16, which halve the bytes.");
ABSL_FLAG(bool, replay, false, "Capture an iteration whole and replay it.");
ABSL_FLAG(int, rounds, 5, "Iterations, after a warm-up, whose median counts.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures training beyond the memory of a simulated device.\n"
    "\n"
    "  bench_paging --kappa=2,3 --capacity=0.35\n"
    "  bench_paging --nets=models/googlenet/net.textproto --capacity=0.5,0.25\n"
    "\n"
    "Trains nothing. Steps sleep. Those of --nets are of SGD with momentum, and take\n"
    "the time of their FLOPs. The defaults are five times slower than a GPU of 1.5\n"
    "TFLOP/s behind 6 GB/s and beside a host whose optimizer moves 50 GB/s. GeePS's\n"
    "three nets are adamlike, googlenet and vgg19, on a --capacity of 0.25.\n"
    "Prints a JSON line for each net, kappa, capacity and planner, with milliseconds\n"
    "of an iteration, predicted and measured, and\n"
    "  least_capacity  share of memory that the planner needs (no times if more)\n"
    "  resident_ms     milliseconds with all in memory\n"
    "  bound_ms        least of any plan: the longer of forward and copies out, plus\n"
    "                  the longer of backward (with what runs again) and copies in\n"
    "  plan_seconds    time of planning, with --plan_steps. Nothing runs\n"
    "  planned_bytes   what a net's states take as they share memory over time\n"
    "Predictions know what waking a thread adds to a step with all in memory. With\n"
    "--page_activations of 16 bits the bound is of half the bytes, and kappa of all.\n"
    "Bytes and times of unequal layers vary 16 times, independently.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Layers", {"layers", "layer_kib", "layer_ms", "unequal", "repeatable", "kappa"}},
    {"Real nets", {"nets", "batch", "flops", "copy_gb_s", "host_gb_s"}},
    {"Paging", {"capacity", "planners", "page_activations", "replay"}},
    {"Measuring", {"rounds", "plan_steps"}},
};

// The nets' traces say what steps take at this rate (net_trace.cc).
constexpr double kTracedFlops = 1e11;

struct NamedPlanner {
  std::string name;
  PlannerKind kind = PlannerKind::kAuto;
};
// `naive` is a baseline, which no run can choose.
const NamedPlanner kPlanners[] = {
    {"auto", PlannerKind::kAuto}, {"geeps", PlannerKind::kGeeps}, {"naive", PlannerKind::kNaive}};

struct PagingFlags {
  std::vector<NamedPlanner> planners;
  std::vector<double> kappas, shares;
  DType page_activations = DType::kF32;
  PagingCosts costs;  // a real net's, also of conversions
};

// A net to page.
struct PagedNet {
  nlohmann::ordered_json about;  // which net it is, in each row
  AccessTrace work;              // whose steps are slept
  double forward = 0;            // seconds of all layers.  0: a real net
  bool runs = true;              // false: it is planned alone
  // As MeasureNet finds them.
  AccessTrace trace = {};  // that is planned: `work` with waking
  double bytes = 0;        // of all states, each in memory of its own
  double resident = 0;     // seconds of an iteration with all in memory
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

// Median seconds of an iteration, after one more.  A self-contained plan's is captured once and
// replayed.
absl::StatusOr<double> RunIterations(const AccessTrace& trace, const PagingPlan& plan,
                                     const PagingFlags& flags, const PagingCosts& costs) {
  using Seconds = std::chrono::duration<double>;
  const std::unique_ptr<Device> device = NewSimDevice(
      {.capacity_bytes = plan.device_bytes, .copy_bytes_per_s = costs.to_device_bytes_per_s});
  ASSIGN_OR_RETURN(const Buffer arena,
                   Buffer::Allocate(*device, MemoryKind::kDevice, plan.device_bytes));
  ASSIGN_OR_RETURN(const Buffer pages,
                   Buffer::Allocate(*device, MemoryKind::kPinnedHost, plan.page_bytes));
  const int positions = static_cast<int>(plan.order.size());
  ASSIGN_OR_RETURN(const auto pager,
                   Pager::Create(*device, plan, arena.data(), pages.data(),
                                 /*file=*/nullptr, KernelsTo(flags.page_activations)));
  ASSIGN_OR_RETURN(const auto compute, device->NewStream());
  std::vector<bool> on_host(plan.order.size());
  for (const auto& [position, blocks] : plan.host_steps) on_host[position] = true;
  const auto enqueue = [&]() -> absl::Status {
    for (int at = 0; at < positions; ++at) {
      RETURN_IF_ERROR(pager->Advance(at - 1, at, *compute));
      const TraceStep& step = trace.steps[plan.order[at]];
      if (on_host[at]) {
        const double work = static_cast<double>(step.host_bytes) / costs.host_step_bytes_per_s;
        RETURN_IF_ERROR(pager->RunOnHost(at, SleptWork(Seconds(work))));
      } else {
        RETURN_IF_ERROR(compute->Call(SleptWork(Seconds(step.seconds))));
      }
    }
    return pager->Advance(positions - 1, positions, *compute);
  };
  std::unique_ptr<Graph> graph;
  if (plan.self_contained) {
    RETURN_IF_ERROR(compute->BeginCapture());
    RETURN_IF_ERROR(enqueue());
    ASSIGN_OR_RETURN(graph, compute->EndCapture());
  }
  std::vector<double> seconds;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const BenchClock::time_point start = BenchClock::now();
    RETURN_IF_ERROR(graph ? graph->Replay(*compute) : enqueue());
    RETURN_IF_ERROR(compute->Synchronize());
    if (round >= 0) seconds.push_back(SecondsSince(start));
  }
  return Median(seconds);
}

// Bytes of F32 a second that one thread converts.  Precondition: a type of 16 bits.
absl::StatusOr<double> ConvertBytesPerSecond(DType page_activations) {
  constexpr size_t kBytes = size_t{2} << 20;  // of F32: a slot of staging is filled by as many
  const NarrowKernels kernels = KernelsTo(page_activations);
  const std::unique_ptr<Device> device = NewSimDevice({});
  ASSIGN_OR_RETURN(const Buffer wide, Buffer::Allocate(*device, MemoryKind::kDevice, kBytes));
  ASSIGN_OR_RETURN(const Buffer narrow, Buffer::Allocate(*device, MemoryKind::kDevice, kBytes / 2));
  ASSIGN_OR_RETURN(const auto stream, device->NewStream());
  std::vector<double> seconds;
  for (int round = 0; round < 9; ++round) {
    const BenchClock::time_point start = BenchClock::now();
    RETURN_IF_ERROR(kernels.narrow(*stream, wide.data(), narrow.data(), kBytes / sizeof(float)));
    RETURN_IF_ERROR(stream->Synchronize());
    seconds.push_back(SecondsSince(start));
  }
  return kBytes / Median(seconds);
}

// Adds a thread's time to wake to each step, from `resident`, an iteration's seconds unpaged.
AccessTrace WithWaking(AccessTrace trace, double resident) {
  double slept = 0;
  for (const TraceStep& step : trace.steps) slept += step.seconds;
  const double waking = (resident - slept) / static_cast<double>(trace.steps.size());
  for (TraceStep& step : trace.steps) step.seconds += std::max(waking, 0.0);
  return trace;
}

// The least that an iteration can take.  When the last layer's forward begins what it leaves has a
// place.  What the device cannot hold beside that has been copied since the first layer's forward,
// or runs again, of those that may the ones that take least time for their bytes.  When backward
// begins as much is away.  Of equal layers the device holds whole ones.
double Bound(const PagedNet& net, double share, double bandwidth) {
  const std::vector<TraceStep>& steps = net.work.steps;
  const int count = static_cast<int>(steps.size() / 2);  // of layers
  const auto all_of = [&](int first, int beyond) {
    return std::accumulate(steps.begin() + first, steps.begin() + beyond, 0.0,
                           [](double sum, const TraceStep& step) { return sum + step.seconds; });
  };
  const double between = all_of(1, count - 1);
  const double backward = all_of(count, 2 * count);
  const auto layer = static_cast<double>(net.work.states[0].bytes);
  const bool equal = std::ranges::all_of(net.work.states, [&](const TraceState& state) {
    return state.bytes == net.work.states[0].bytes;
  });
  const double holds = equal ? std::floor(share * net.bytes / layer) * layer : share * net.bytes;
  const int parts = equal ? 1 : 100;  // of an unequal layer: as fine as the result is to be
  std::vector<int> layers(count);
  std::iota(layers.begin(), layers.end(), 0);
  std::erase_if(layers, [&](int i) { return !net.work.steps[i].repeatable; });
  std::ranges::sort(layers, {}, [&](int i) {
    return net.work.steps[i].seconds / static_cast<double>(net.work.states[i].bytes);
  });
  double leaves = std::max(0.0, net.bytes - holds) / bandwidth, again = 0;
  const auto bound = [&] {
    return steps[0].seconds + std::max(between, leaves) + steps[count - 1].seconds +
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

// row: of the net, what holds for each planner.
absl::Status MeasurePlanner(const PagedNet& net, const PagingFlags& flags,
                            const NamedPlanner& planner, const PagingCosts& costs, double share,
                            nlohmann::ordered_json row) {
  const size_t least = FindLargestStep(net.trace, nullptr, planner.kind).bytes;
  row.update({{"all_bytes", static_cast<size_t>(net.bytes)},
              {"capacity", share},
              {"planner", planner.name},
              {"least_bytes", least},
              {"least_capacity", static_cast<double>(least) / net.bytes}});
  const BenchClock::time_point start = BenchClock::now();
  const absl::StatusOr<PagingPlan> plan =
      PlanPaging(net.trace, costs,
                 {.capacity_bytes = static_cast<size_t>(share * net.bytes),
                  .self_contained = absl::GetFlag(FLAGS_replay)},
                 planner.kind);
  if (plan.ok() && !net.runs) {
    row.update({{"plan_seconds", SecondsSince(start)}, {"predicted_ms", plan->seconds * 1000}});
  } else if (plan.ok()) {
    ASSIGN_OR_RETURN(const double measured, RunIterations(net.work, *plan, flags, costs));
    double again = 0;
    for (const int step : plan->order) again += net.work.steps[step].seconds;
    for (const TraceStep& step : net.work.steps) again -= step.seconds;
    row.update({{"fetched_bytes", plan->fetched_bytes},
                {"written_bytes", plan->written_bytes},
                {"steps_again", plan->order.size() - net.trace.steps.size()},
                {"again_ms", again * 1000},
                {"steps_on_host", plan->host_steps.size()},
                {"resident_ms", net.resident * 1000},
                {"predicted_ms", plan->seconds * 1000},
                {"measured_ms", measured * 1000},
                {"kept_of_resident", net.resident / measured}});
    if (net.forward > 0) {
      const double narrower = flags.page_activations == DType::kF32 ? 1 : 2;
      const double bound = Bound(net, share, narrower * costs.to_device_bytes_per_s);
      row.update({{"bound_ms", bound * 1000}, {"kept_of_bound", bound / measured}});
    }
  } else if (!absl::IsResourceExhausted(plan.status())) {
    return plan.status();
  }
  PrintRow(row);
  return absl::OkStatus();
}

absl::Status MeasureNet(PagedNet net, const PagingFlags& flags) {
  size_t all = 0;
  for (const TraceState& state : net.work.states) all += state.view_of < 0 ? state.bytes : 0;
  net.bytes = static_cast<double>(all);
  net.trace = net.work;
  if (net.runs) {
    ASSIGN_OR_RETURN(const PagingPlan whole, PlanPaging(net.work, {}, {.capacity_bytes = 2 * all}));
    ASSIGN_OR_RETURN(net.resident, RunIterations(net.work, whole, flags, {}));
    net.trace = WithWaking(net.work, net.resident);
  }
  const bool real = net.forward == 0;
  for (const double kappa : real ? std::vector<double>{0} : flags.kappas) {
    nlohmann::ordered_json row = net.about;
    PagingCosts costs = flags.costs;
    if (!real) {
      row["kappa"] = kappa;
      costs.to_device_bytes_per_s = costs.to_host_bytes_per_s = net.bytes / (kappa * net.forward);
    }
    for (const double share : flags.shares) {
      for (const NamedPlanner& planner : flags.planners) {
        RETURN_IF_ERROR(MeasurePlanner(net, flags, planner, costs, share, row));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureRealNet(const std::string& path, const PagingFlags& flags) {
  const int batch = absl::GetFlag(FLAGS_batch);
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(path));
  const Primitives primitives(DeviceKind::kSim, /*threads=*/1);
  ASSIGN_OR_RETURN(
      const ModelPlan plan,
      PlanModel(net, {.shape = {.global = batch, .page_activations = flags.page_activations},
                      .slots = {"momentum"},
                      .primitives = &primitives}));
  AccessTrace work = plan.train->trace.trace;
  for (TraceStep& step : work.steps) {
    step.seconds *= kTracedFlops / absl::GetFlag(FLAGS_flops);
    if (absl::GetFlag(FLAGS_host_gb_s) == 0) step.host_bytes = 0;
  }
  return MeasureNet({.about = {{"net", net.message->name()},
                               {"batch", batch},
                               {"planned_bytes", plan.train->memory.device_bytes}},
                     .work = std::move(work)},
                    flags);
}

// `trace`: of layers, forward and backward.
absl::Status MeasureLayers(nlohmann::ordered_json about, AccessTrace trace, bool runs,
                           const PagingFlags& flags) {
  PagedNet net = {.about = std::move(about), .work = std::move(trace), .runs = runs};
  for (size_t layer = 0; layer < net.work.states.size(); ++layer) {
    net.work.states[layer].may_narrow = flags.page_activations != DType::kF32;
    net.work.steps[layer].repeatable = absl::GetFlag(FLAGS_repeatable);
    net.forward += net.work.steps[layer].seconds;
  }
  return MeasureNet(std::move(net), flags);
}

absl::StatusOr<PagingFlags> ReadPagingFlags() {
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_rounds, FLAGS_batch}));
  RETURN_IF_ERROR(CheckPositive({FLAGS_flops, FLAGS_copy_gb_s}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_host_gb_s}));
  PagingFlags flags;
  for (const std::string& name : absl::GetFlag(FLAGS_planners)) {
    const auto known = std::ranges::find(kPlanners, name, &NamedPlanner::name);
    if (known == std::end(kPlanners)) return WrongValue("planners", name, "auto, geeps or naive");
    flags.planners.push_back(*known);
  }
  ASSIGN_OR_RETURN(flags.kappas, PositiveNumbers("kappa", absl::GetFlag(FLAGS_kappa)));
  ASSIGN_OR_RETURN(flags.shares, PositiveNumbers("capacity", absl::GetFlag(FLAGS_capacity)));
  ASSIGN_OR_RETURN(flags.page_activations,
                   TypeNamed("page_activations", absl::GetFlag(FLAGS_page_activations),
                             {DType::kF32, DType::kF16, DType::kBF16}));
  const double copies = 1e9 * absl::GetFlag(FLAGS_copy_gb_s);
  flags.costs = {.to_device_bytes_per_s = copies,
                 .to_host_bytes_per_s = copies,
                 .host_step_bytes_per_s = 1e9 * absl::GetFlag(FLAGS_host_gb_s)};
  if (flags.page_activations != DType::kF32) {
    ASSIGN_OR_RETURN(flags.costs.convert_bytes_per_s,
                     ConvertBytesPerSecond(flags.page_activations));
  }
  return flags;
}

absl::Status Run() {
  const int layers = absl::GetFlag(FLAGS_layers), kib = absl::GetFlag(FLAGS_layer_kib);
  RETURN_IF_ERROR(CheckLeast(2, {FLAGS_layers}));
  RETURN_IF_ERROR(CheckLeast(4, {FLAGS_layer_kib}));
  RETURN_IF_ERROR(CheckValue(kib % 4 == 0, "layer_kib", kib, "a multiple of 4"));
  RETURN_IF_ERROR(CheckPositive({FLAGS_layer_ms}));
  ASSIGN_OR_RETURN(const PagingFlags flags, ReadPagingFlags());
  ASSIGN_OR_RETURN(const std::vector<double> plan_steps,
                   PositiveNumbers("plan_steps", absl::GetFlag(FLAGS_plan_steps)));
  const size_t bytes = static_cast<size_t>(kib) << 10;
  const double seconds = absl::GetFlag(FLAGS_layer_ms) / 1000;
  for (const double steps : plan_steps) {
    RETURN_IF_ERROR(CheckLeast(4, {FlagNumber("plan_steps", steps)}));
    AccessTrace trace = UnequalLayers(/*seed=*/1, static_cast<int>(steps / 2), bytes, seconds);
    const nlohmann::ordered_json about = {{"steps", trace.steps.size()},
                                          {"repeatable", absl::GetFlag(FLAGS_repeatable)}};
    RETURN_IF_ERROR(MeasureLayers(about, std::move(trace), /*runs=*/false, flags));
  }
  if (!plan_steps.empty()) return absl::OkStatus();
  for (const std::string& path : absl::GetFlag(FLAGS_nets)) {
    RETURN_IF_ERROR(MeasureRealNet(path, flags));
  }
  if (!absl::GetFlag(FLAGS_nets).empty()) return absl::OkStatus();
  const std::vector<std::string> seeds = absl::GetFlag(FLAGS_unequal);
  if (seeds.empty()) {
    return MeasureLayers({}, EqualLayers(layers, bytes, seconds), /*runs=*/true, flags);
  }
  for (const std::string& text : seeds) {
    uint64_t seed = 0;
    RETURN_IF_ERROR(
        CheckValue(absl::SimpleAtoi(text, &seed), "unequal", text, "0 or a positive number"));
    RETURN_IF_ERROR(MeasureLayers({{"unequal", seed}}, UnequalLayers(seed, layers, bytes, seconds),
                                  /*runs=*/true, flags));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Run);
}
