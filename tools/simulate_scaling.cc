// simulate_scaling: what training is expected to reach on a cluster that is not there: steps of
// many ranks by a model of computation, links, copies and stragglers.

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "distributed/scaling/scaling.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/text_file.h"
#include "engine/runtime/check.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/ranks.h"
#include "tools/scaling/net_workload.h"
#include "tools/scaling/scaling_picture.h"

ABSL_FLAG(std::string, net, "", "Text file of the net.");
ABSL_FLAG(int, rank_batch, 1, "Samples a step of each rank.");
ABSL_FLAG(double, flops, 0,
          "FLOPs a second at which a rank computes the net's layers.  Default: none.");
ABSL_FLAG(double, step_ms, 0,
          "Milliseconds of one rank's step, in place of --flops.  Default: none.");
ABSL_FLAG(std::string, layer_time, "flops",
          "Each layer's share of a step: flops, or the pieces of work in a file with a line of "
          "bench_scaling.");
ABSL_FLAG(std::string, device_memory, "",
          "Bytes of device memory, such as 64M.  A net beyond that pages.  Default: it holds all.");
ABSL_FLAG(std::vector<std::string>, rank_counts,
          (std::vector<std::string>{"1", "2", "4", "8", "16", "32", "64", "128", "256", "512",
                                    "1024", "2048", "4096", "8192"}),
          "Numbers of ranks, with commas, in growing order.");
ABSL_FLAG(int, ranks_per_host, 1, "Ranks that share a link to other hosts.");
ABSL_FLAG(std::vector<std::string>, algorithms, {"auto"},
          "Algorithms that sum gradients, with commas: ring, direct, halving_doubling, "
          "recursive_doubling, shared, hierarchical, naive, auto.");
ABSL_FLAG(std::string, sync, "allreduce", "allreduce, or a parameter server: bsp, ssp or async.");
ABSL_FLAG(int, staleness, 0, "Steps that ssp may lag.");
ABSL_FLAG(int, servers, 0, "Ranks of a parameter server that only serve.");
ABSL_FLAG(std::string, schedule, "forward",
          "Work that sums overlap: forward (backward and the next forward, as train), backward "
          "(alone), none (after backward).");
ABSL_FLAG(bool, bucket_a_gradient, false, "Sum each gradient alone, without buckets.");
ABSL_FLAG(std::string, calibration, "",
          "File of bench_allreduce --calibrate, also for what is within a host.");
ABSL_FLAG(double, alpha_us, 30, "Between hosts: microseconds to start a message.");
ABSL_FLAG(double, beta_gb_s, 1.25, "Between hosts: 10^9 bytes a second of a link, each way.");
ABSL_FLAG(double, copy_gb_s, 0,
          "10^9 bytes a second between device and host, each way.  0: gradients are summed where "
          "they are.");
ABSL_FLAG(double, jitter, 0,
          "Mean share by which a rank's step is longer, exponentially distributed.");
ABSL_FLAG(double, slowest, 1, "Factor on one rank's computation.");
ABSL_FLAG(int, steps, 20, "Steps to simulate.  The first quarter does not count.");
ABSL_FLAG(uint64_t, seed, 1, "Seed of the jitter.");
ABSL_FLAG(double, samples, 0, "Samples of an epoch.  0: one rank's batch.");
ABSL_FLAG(bool, table, false, "Print a table in place of JSON lines.");
ABSL_FLAG(std::string, picture, "", "File for efficiency over ranks, NAME.svg.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "predicts training on more ranks than there are.\n"
    "\n"
    "  simulate_scaling --net=models/vgg19/net.textproto --rank_batch=32 \\\n"
    "    --flops=5e12 --beta_gb_s=5\n"
    "  simulate_scaling --net=... --step_ms=44 --calibration=cluster.json \\\n"
    "    --rank_counts=2,4,8 --table\n"
    "\n"
    "Each rank has a batch of its own, however many there are.\n"
    "Prints a JSON line for each way to sum and each number of ranks, and one for\n"
    "each way with A and B of an epoch's (A + B log2 N) / N seconds and the residual\n"
    "(root mean square of relative errors). --table marks residuals above 25 %.\n"
    "The model is described in distributed/scaling/README.md.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Work", {"net", "rank_batch", "flops", "step_ms", "layer_time", "device_memory"}},
    {"Ranks",
     {"rank_counts", "ranks_per_host", "algorithms", "sync", "staleness", "servers", "schedule",
      "bucket_a_gradient"}},
    {"Speeds", {"calibration", "alpha_us", "beta_gb_s", "copy_gb_s"}},
    {"Stragglers", {"jitter", "slowest", "seed"}},
    {"Output", {"steps", "samples", "table", "picture"}},
};

constexpr double kMostResidual = 0.25;  // of a law that tells an epoch's time
constexpr double kMostSamples = 1e30;   // whose epoch takes a number of seconds

// In at most 8 columns.
std::string Milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return ms < 1e5   ? absl::StrFormat("%.2f", ms)
         : ms < 1e8 ? absl::StrFormat("%.0f", ms)
                    : absl::StrFormat("%.2e", ms);
}

class Printer {
 public:
  Printer(const Workload& workload, bool table)
      : net_(workload.name),
        samples_(absl::GetFlag(FLAGS_samples) > 0 ? absl::GetFlag(FLAGS_samples)
                                                  : static_cast<double>(workload.samples)),
        table_(table) {
    if (table_) {
      std::printf("%-18.18s %5s %8s %8s %10s %10s %9s %5s\n", net_.c_str(), "ranks", "step ms",
                  "sums ms", "exposed ms", "waiting ms", "samples/s", "eff.");
    }
  }

  void Print(const std::string& way, const ScalingPoint& p) const {
    if (table_) {
      std::printf("%-18s %5d %8s %8s %10s %10s %9.1f %5.3f\n", way.c_str(), p.ranks,
                  Milliseconds(p.step).c_str(), Milliseconds(p.sums).c_str(),
                  Milliseconds(p.exposed).c_str(), Milliseconds(p.waiting).c_str(),
                  p.samples_per_second, p.efficiency);
      return;
    }
    const nlohmann::ordered_json line = {{"net", net_},
                                         {"exchange", way},
                                         {"ranks", p.ranks},
                                         {"hosts", p.hosts},
                                         {"buckets", p.buckets},
                                         {"alone_ms", p.alone * 1e3},
                                         {"step_ms", p.step * 1e3},
                                         {"sums_ms", p.sums * 1e3},
                                         {"exposed_ms", p.exposed * 1e3},
                                         {"waiting_ms", p.waiting * 1e3},
                                         {"samples_per_second", p.samples_per_second},
                                         {"efficiency", p.efficiency},
                                         {"speedup", p.efficiency * p.ranks},
                                         {"epoch_s", samples_ / p.samples_per_second}};
    std::printf("%s\n", line.dump().c_str());
  }

  void PrintFit(const std::string& way, const std::vector<ScalingPoint>& points) const {
    const EpochFit fit = FitEpoch(points, samples_);
    if (table_ && fit.residual > kMostResidual) {
      std::printf("%-18s (A + B log2 N) / N does not fit: errors of %.0f %%\n", way.c_str(),
                  100 * fit.residual);
      std::printf("%-18s use the rows, or fit fewer --rank_counts\n", "");
      return;
    }
    if (table_) {
      std::printf("%-18s epoch = (%.6g + %.6g log2 N) / N s, within %.1f %%\n", way.c_str(),
                  fit.a_s, fit.b_s, 100 * fit.residual);
      return;
    }
    const nlohmann::ordered_json line = {
        {"net", net_},    {"exchange", way}, {"epoch", "(A + B log2 N) / N"},
        {"a_s", fit.a_s}, {"b_s", fit.b_s},  {"residual", fit.residual}};
    std::printf("%s\n", line.dump().c_str());
  }

 private:
  const std::string net_;
  const double samples_;
  const bool table_;
};

constexpr int kMostRanks = 8192;
constexpr double kMostJitter = 1000;  // beyond it nothing else of a step counts

absl::Status CheckNumbers() {
  RETURN_IF_ERROR(
      CheckPositive({FLAGS_rank_batch, FLAGS_ranks_per_host, FLAGS_beta_gb_s, FLAGS_slowest}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_flops, FLAGS_step_ms, FLAGS_staleness, FLAGS_servers,
                                 FLAGS_alpha_us, FLAGS_copy_gb_s, FLAGS_jitter}));
  RETURN_IF_ERROR(CheckLeast(2, {FLAGS_steps}));
  const double jitter = absl::GetFlag(FLAGS_jitter);
  RETURN_IF_ERROR(
      CheckValue(jitter <= kMostJitter, "jitter", jitter, absl::StrCat("at most ", kMostJitter)));
  if (absl::GetFlag(FLAGS_copy_gb_s) == 0 && !absl::GetFlag(FLAGS_device_memory).empty()) {
    return absl::InvalidArgumentError("--copy_gb_s is missing: what pages is copied at that rate");
  }
  return absl::OkStatus();
}

// The last line of bench_scaling's in a file.
absl::Status ReadPieces(const std::string& path, NetWorkloadOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  nlohmann::json line;
  for (const absl::string_view row : absl::StrSplit(text, '\n')) {
    nlohmann::json parsed = nlohmann::json::parse(row, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object() && parsed.contains("layers")) line = std::move(parsed);
  }
  const auto error = absl::InvalidArgumentError("expected a line that bench_scaling has printed");
  const auto count = [](const nlohmann::json& value) {
    return value.is_number_unsigned() ? value.get<double>() : -1.0;
  };
  if (!line.is_object() || !line["layers"].is_array()) return error;
  const double pieces = count(line["pieces"]);
  double in_layers = 0;
  for (const nlohmann::json& layer : line["layers"]) {
    if (!layer.is_array() || layer.size() != 2) return error;
    const WorkloadLayer parts = {count(layer[0]), count(layer[1])};
    if (parts.forward_s < 0 || parts.backward_s < 0) return error;
    in_layers += parts.forward_s + parts.backward_s;
    options.parts.push_back(parts);
  }
  if (in_layers == 0 || in_layers > pieces) return error;
  options.update_s = options.step_s * (pieces - in_layers) / pieces;
  return absl::OkStatus();
}

absl::StatusOr<Workload> ReadWorkload() {
  const std::string path = absl::GetFlag(FLAGS_net), memory = absl::GetFlag(FLAGS_device_memory);
  if (path.empty()) return absl::InvalidArgumentError("--net is missing; see --help");
  size_t device_bytes = 0;  // it holds all
  if (!memory.empty()) {
    ASSIGN_OR_RETURN(device_bytes, ParseBytes("--device_memory", memory));
  }
  const double step_s = absl::GetFlag(FLAGS_step_ms) / 1e3;
  if ((absl::GetFlag(FLAGS_flops) > 0) == (step_s > 0)) {
    return absl::InvalidArgumentError(
        "--net: say how fast a rank computes it, by one of --flops and --step_ms");
  }
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(path));
  NetWorkloadOptions options{.batch = absl::GetFlag(FLAGS_rank_batch),
                             .step_s = step_s,
                             .flops = absl::GetFlag(FLAGS_flops),
                             .device_bytes = static_cast<double>(device_bytes),
                             .copied_bytes_per_s = absl::GetFlag(FLAGS_copy_gb_s) * 1e9};
  const std::string times = absl::GetFlag(FLAGS_layer_time);
  if (times == "flops") return WorkloadOf(net, options);
  if (step_s == 0) {
    return absl::InvalidArgumentError("--layer_time of a file: expected --step_ms beside it");
  }
  RETURN_IF_ERROR(Annotate(ReadPieces(times, options), times));
  absl::StatusOr<Workload> workload = WorkloadOf(net, options);
  if (!workload.ok()) return Annotate(workload.status(), times);
  return workload;
}

absl::StatusOr<SumCosts> ReadCosts() {
  const LinkCosts links = {.start_between = absl::GetFlag(FLAGS_alpha_us) / 1e6,
                           .byte_between = 1e-9 / absl::GetFlag(FLAGS_beta_gb_s)};
  const std::string path = absl::GetFlag(FLAGS_calibration);
  if (path.empty()) return SumCosts::Create(links, "");
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  auto costs = SumCosts::Create(links, text);
  if (!costs.ok()) return Annotate(costs.status(), path);
  return costs;
}

absl::StatusOr<ScalingSetup> ReadSetup() {
  ScalingSetup setup{.ranks_per_host = absl::GetFlag(FLAGS_ranks_per_host),
                     .staleness = absl::GetFlag(FLAGS_staleness),
                     .servers = absl::GetFlag(FLAGS_servers),
                     .bucket_a_gradient = absl::GetFlag(FLAGS_bucket_a_gradient),
                     .copied_bytes_per_s = absl::GetFlag(FLAGS_copy_gb_s) * 1e9,
                     .stragglers = {.jitter = absl::GetFlag(FLAGS_jitter),
                                    .slowest = absl::GetFlag(FLAGS_slowest),
                                    .seed = absl::GetFlag(FLAGS_seed)},
                     .steps = absl::GetFlag(FLAGS_steps)};
  const std::string sync = absl::GetFlag(FLAGS_sync);
  constexpr std::string_view kSyncs[] = {"allreduce", "bsp", "ssp", "async"};
  const auto found = std::ranges::find(kSyncs, sync);
  if (found == std::end(kSyncs)) return WrongValue("sync", sync, "allreduce, bsp, ssp or async");
  setup.sync = static_cast<SyncMode>(found - kSyncs);
  if (setup.staleness > 0 && sync != "ssp") {
    return absl::InvalidArgumentError("--staleness: of --sync=ssp alone");
  }
  if (setup.servers > 0 && sync == "allreduce") {
    return absl::InvalidArgumentError("--servers: of --sync=bsp, ssp and async");
  }
  const std::string schedule = absl::GetFlag(FLAGS_schedule);
  constexpr std::string_view kSchedules[] = {"none", "backward", "forward"};
  const auto chosen = std::ranges::find(kSchedules, schedule);
  if (chosen == std::end(kSchedules)) {
    return WrongValue("schedule", schedule, "none, backward or forward");
  }
  setup.schedule = static_cast<StepSchedule>(chosen - kSchedules);
  return setup;
}

absl::StatusOr<std::vector<int>> ReadRanks() {
  std::vector<int> ranks;
  for (const std::string& text : absl::GetFlag(FLAGS_rank_counts)) {
    int& count = ranks.emplace_back();
    if (!absl::SimpleAtoi(text, &count) || count < 1 || count > kMostRanks) {
      return absl::InvalidArgumentError(
          absl::StrCat("--rank_counts: expected numbers from 1 to ", kMostRanks, ", got ", text));
    }
    if (ranks.size() > 1 && count <= ranks[ranks.size() - 2]) {
      return absl::InvalidArgumentError(
          absl::StrCat("--rank_counts: expected growing numbers, got ", absl::StrJoin(ranks, ",")));
    }
  }
  return ranks;
}

// What is simulated, by name: each way to sum, or the one server.
absl::StatusOr<std::vector<std::string>> ReadWays(const ScalingSetup& setup) {
  std::vector<std::string> names = absl::GetFlag(FLAGS_algorithms);
  if (setup.sync != SyncMode::kAllreduce) {
    if (names != std::vector<std::string>{"auto"}) {
      return absl::InvalidArgumentError("--algorithms: of --sync=allreduce alone");
    }
    std::string name = absl::GetFlag(FLAGS_sync);
    if (setup.sync == SyncMode::kSsp) absl::StrAppend(&name, " ", setup.staleness);
    if (setup.servers > 0) absl::StrAppend(&name, ", ", setup.servers, " servers");
    return std::vector<std::string>{name};
  }
  for (const std::string& name : names) {
    if (name != "auto" && !IsModelled(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--algorithms: there is no ", name, "; see --help"));
    }
  }
  return names;
}

absl::Status Run() {
  const std::string picture = absl::GetFlag(FLAGS_picture);
  if (!picture.empty()) RETURN_IF_ERROR(CheckEnding("picture", picture, {".svg"}));
  RETURN_IF_ERROR(CheckNumbers());
  ASSIGN_OR_RETURN(const std::vector<int> rank_counts, ReadRanks());
  ASSIGN_OR_RETURN(ScalingSetup setup, ReadSetup());
  ASSIGN_OR_RETURN(const std::vector<std::string> ways, ReadWays(setup));
  ASSIGN_OR_RETURN(const SumCosts costs, ReadCosts());
  ASSIGN_OR_RETURN(const Workload workload, ReadWorkload());
  if (!picture.empty() && rank_counts.size() < 2) {
    return absl::InvalidArgumentError("--picture: expected two numbers or more of --rank_counts");
  }
  const double samples = absl::GetFlag(FLAGS_samples);
  RETURN_IF_ERROR(CheckValue(samples >= 0 && samples <= kMostSamples, "samples", samples,
                             "a number of samples"));
  const Printer printer(workload, absl::GetFlag(FLAGS_table));
  std::vector<ScalingLine> lines;
  for (const std::string& way : ways) {
    if (setup.sync == SyncMode::kAllreduce) setup.algorithm = way;
    ScalingLine& line = lines.emplace_back();
    line.name = way;
    for (const int ranks : rank_counts) {
      const auto point = SimulateScaling(workload, costs, setup, ranks);
      if (!point.ok()) return Annotate(point.status(), absl::StrCat("--rank_counts=", ranks));
      line.points.push_back(*point);
      printer.Print(way, *point);
    }
    if (rank_counts.size() > 1) printer.PrintFit(way, line.points);
  }
  if (picture.empty()) return absl::OkStatus();
  const std::string image = ScalingPicture(
      lines,
      absl::StrCat("Efficiency of ", workload.name, ", ", workload.samples, " samples a rank"));
  return WriteFileAtomically(picture, image);
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv, kUsage, kGroups);
  if (const absl::Status status = Run(); !status.ok()) Fail(nullptr, status);
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
