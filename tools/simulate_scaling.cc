// simulate_scaling: what training is expected to reach on a cluster that is not there: steps of
// many ranks by a model of computation, links, copies and stragglers.

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/scaling/scaling.h"
#include "engine/data/files/atomic_file.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/ranks.h"
#include "tools/scaling/scaling_flags.h"
#include "tools/scaling/scaling_picture.h"

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
    {"Speeds",
     {"calibration", "alpha_us", "beta_gb_s", "alpha_within_us", "beta_within_gb_s", "gamma_gb_s",
      "copy_gb_s"}},
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

absl::Status Run() {
  const std::string picture = absl::GetFlag(FLAGS_picture);
  if (!picture.empty()) RETURN_IF_ERROR(CheckEnding("picture", picture, {".svg"}));
  ASSIGN_OR_RETURN(ScalingRun run, ReadScalingFlags());
  if (!picture.empty() && run.ranks.size() < 2) {
    return absl::InvalidArgumentError("--picture: expected two numbers or more of --rank_counts");
  }
  const double samples = absl::GetFlag(FLAGS_samples);
  RETURN_IF_ERROR(CheckValue(samples >= 0 && samples <= kMostSamples, "samples", samples,
                             "a number of samples"));
  const Printer printer(run.workload, absl::GetFlag(FLAGS_table));
  std::vector<ScalingLine> lines;
  for (const std::string& way : run.ways) {
    if (run.setup.sync == SyncMode::kAllreduce) run.setup.algorithm = way;
    ScalingLine& line = lines.emplace_back();
    line.name = way;
    for (const int ranks : run.ranks) {
      const auto point = SimulateScaling(run.workload, run.costs, run.setup, ranks);
      if (!point.ok()) return Annotate(point.status(), absl::StrCat("--rank_counts=", ranks));
      line.points.push_back(*point);
      printer.Print(way, *point);
    }
    if (run.ranks.size() > 1) printer.PrintFit(way, line.points);
  }
  if (picture.empty()) return absl::OkStatus();
  const std::string image =
      ScalingPicture(lines, absl::StrCat("Efficiency of ", run.workload.name, ", ",
                                         run.workload.samples, " samples a rank"));
  return WriteFileAtomically(picture, [&](const FileSink& sink) { return sink(image); });
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv, kUsage, kGroups);
  if (const absl::Status status = Run(); !status.ok()) Fail(nullptr, status);
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
