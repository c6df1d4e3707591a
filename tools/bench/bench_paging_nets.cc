// bench_paging_nets: what paging costs an iteration of real nets: their states and steps as `train`
// plans them, copied at a given bandwidth; how long a step works follows from its FLOPs, and is
// slept.

#include <string>
#include <vector>

#include "engine/training/model/model.h"
#include "models/schema/parse.h"
#include "tools/bench/bench.h"
#include "tools/bench/paged_iteration.h"

ABSL_FLAG(std::vector<std::string>, nets,
          (std::vector<std::string>{"models/adamlike/net.textproto",
                                    "models/googlenet/net.textproto",
                                    "models/vgg19/net.textproto"}),
          "Text files of nets.");
ABSL_FLAG(int, batch, 16, "Samples a step.");
ABSL_FLAG(std::vector<std::string>, capacity, {"0.25"},
          "Shares of all states, each in memory of its own, that the device holds.");
ABSL_FLAG(double, flops, 3e11, "FLOPs a second of steps.");
ABSL_FLAG(double, copy_gb_s, 1.2, "10^9 bytes a second of copies, each way.");
ABSL_FLAG(double, host_gb_s, 10,
          "10^9 bytes a second that a host optimizer reads and writes.  0: no such optimizer.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures paging of nets on a simulated device.\n"
    "\n"
    "  bench_paging_nets --nets=models/googlenet/net.textproto --capacity=0.5,0.25\n"
    "\n"
    "Trains nothing. Steps of SGD with momentum sleep as long as their FLOPs take.\n"
    "The defaults are five times slower than a GPU of 1.5 TFLOP/s behind 6 GB/s and\n"
    "beside a host whose optimizer moves 50 GB/s. They are GeePS's three nets on a\n"
    "fourth of all states' bytes if each has memory of its own, as in GeePS\n"
    "(`all_bytes`). Here states share memory over time (`planned_bytes`).\n"
    "Prints a JSON line for each net, capacity and planner. A planner that needs more\n"
    "than there is has no times. Predictions know what waking a thread adds to a step\n"
    "with all in memory.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Nets", {"nets", "batch", "flops"}},
    {"Paging", {"capacity", "planners", "copy_gb_s", "host_gb_s", "page_activations", "replay"}},
    {"Measuring", {"rounds"}},
};

// The nets' traces say what steps take at this rate (net_trace.cc).
constexpr double kTracedFlops = 1e11;

absl::Status MeasureNet(const std::string& path, const PagingFlags& flags,
                        const std::vector<double>& shares) {
  const DType pages = flags.page_activations;
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(path));
  const Primitives primitives(DeviceKind::kSim, /*threads=*/1);
  ASSIGN_OR_RETURN(
      const ModelPlan plan,
      PlanModel(net, {.shape = {.global = absl::GetFlag(FLAGS_batch), .page_activations = pages},
                      .slots = {"momentum"},
                      .primitives = &primitives}));
  AccessTrace work = plan.train->trace.trace;
  for (TraceStep& step : work.steps) step.seconds *= kTracedFlops / absl::GetFlag(FLAGS_flops);
  size_t all = 0;
  for (const TraceState& state : work.states) all += state.view_of < 0 ? state.bytes : 0;
  const double bandwidth = 1e9 * absl::GetFlag(FLAGS_copy_gb_s);
  const double host_bandwidth = 1e9 * absl::GetFlag(FLAGS_host_gb_s);
  for (TraceStep& step : work.steps) step.host_bytes *= host_bandwidth > 0 ? 1 : 0;
  ASSIGN_OR_RETURN(const PagingPlan whole, PlanPaging(work, {}, {.capacity_bytes = 2 * all}));
  ASSIGN_OR_RETURN(const double resident, RunPagedIterations(work, whole, flags.rounds, {}));
  const AccessTrace trace = WithWaking(work, resident);
  for (const double share : shares) {
    for (const auto& [name, planner] : flags.planners) {
      nlohmann::ordered_json line = {
          {"net", net.message->name()}, {"batch", absl::GetFlag(FLAGS_batch)},
          {"all_bytes", all},           {"planned_bytes", plan.train->memory.device_bytes},
          {"capacity", share},          {"planner", name}};
      line["least_bytes"] = FindLargestStep(trace, nullptr, planner).bytes;
      PagingCosts costs = {.to_device_bytes_per_s = bandwidth,
                           .to_host_bytes_per_s = bandwidth,
                           .host_step_bytes_per_s = host_bandwidth};
      if (pages != DType::kF32) {
        ASSIGN_OR_RETURN(costs.convert_bytes_per_s, ConvertBytesPerSecond(pages));
      }
      const auto paged =
          PlanPaging(trace, costs,
                     {.capacity_bytes = static_cast<size_t>(share * static_cast<double>(all)),
                      .self_contained = flags.replay},
                     planner);
      if (paged.ok()) {
        ASSIGN_OR_RETURN(const double measured, RunPagedIterations(work, *paged, flags.rounds,
                                                                   {.copies = bandwidth,
                                                                    .host_steps = host_bandwidth,
                                                                    .page_activations = pages}));
        line.update({{"fetched_bytes", paged->fetched_bytes},
                     {"written_bytes", paged->written_bytes},
                     {"steps_again", paged->order.size() - trace.steps.size()},
                     {"steps_on_host", paged->host_steps.size()},
                     {"resident_ms", resident * 1000},
                     {"predicted_ms", paged->seconds * 1000},
                     {"measured_ms", measured * 1000},
                     {"kept_of_resident", resident / measured}});
      } else if (!absl::IsResourceExhausted(paged.status())) {
        return paged.status();
      }
      PrintRow(line);
    }
  }
  return absl::OkStatus();
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const PagingFlags flags, ReadPagingFlags());
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_batch}));
  RETURN_IF_ERROR(CheckPositive({FLAGS_flops, FLAGS_copy_gb_s}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_host_gb_s}));
  ASSIGN_OR_RETURN(const std::vector<double> shares,
                   PositiveNumbers("capacity", absl::GetFlag(FLAGS_capacity)));
  for (const std::string& path : absl::GetFlag(FLAGS_nets)) {
    RETURN_IF_ERROR(MeasureNet(path, flags, shares));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Run);
}
