// bench_net: how long a training step takes, with random numbers and labels, against the
// matrix-multiplication peak of the same device in the same minute.

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/random.h"
#include "engine/training/step/training_step.h"
#include "tools/bench/bench.h"
#include "tools/bench/device_peaks.h"
#include "tools/bench/random_batch.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/process.h"

ABSL_FLAG(std::string, net, "", "Text file of the net.  It gets random images and labels.");
ABSL_FLAG(int, batch, 64, "Samples a step, over all ranks.");
ABSL_FLAG(std::string, precision, "F32", "F32, F64, F16 or BF16.");
ABSL_FLAG(bool, tf32, false, "On a GPU, round the factors of F32 products to 10 bits of fraction.");
ABSL_FLAG(int, rounds, 15,
          "Rounds.  0: one a line of standard input, as tools/peer/compare sends.");
ABSL_FLAG(int, steps, 10, "Steps a round.");
ABSL_FLAG(bool, digest, false, "Print the digest of the weights at the end (one rank).");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or sim.");
ABSL_FLAG(std::string, device_memory, "", "Bytes of device memory (cuda, sim), such as 64M.");
ABSL_FLAG(std::string, planner, "auto",
          "Paging planner for nets larger than --device_memory: auto, geeps, or none (an "
          "error).");
ABSL_FLAG(int, threads, 0, "Threads of each rank.  0: cores / ranks on this host.");
ABSL_FLAG(bool, autotune, true,
          "Measure a GPU's algorithms at the start.  Off: use its libraries' recommendations.");
ABSL_FLAG(bool, replay, true, "Capture steps and replay them.  Off: enqueue each anew.");
ABSL_FLAG(std::string, allreduce, "ring", "Algorithm by which ranks sum gradients.");
ABSL_FLAG(bool, shard_optimizer, false, "Each of N ranks updates 1/N of the weights.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures training steps: SGD with momentum on random images.\n"
    "\n"
    "  bench_net --net=models/lenet/net.textproto --threads=2\n"
    "  mpirun -np 2 --bind-to core bench_net --net=models/lenet/net.textproto \\\n"
    "    --threads=1 --allreduce=shared\n"
    "  bench_net --net=models/alexnet/net.textproto --device=cuda --tf32\n"
    "  bench_net --net=models/alexnet/net.textproto --batch=8 --device=sim \\\n"
    "    --device_memory=64M\n"
    "\n"
    "Prints a JSON line of medians over rounds. A step is upload, forward, backward\n"
    "with the sums of ranks, and update. gemm_share is the net's FLOPs a second over\n"
    "those of a large square product of the same precision (2048, on a GPU 8192) in\n"
    "the same round, where memory has no bound. Rank 0 prints for all ranks. Times\n"
    "are rank 0's, rates of images are of all ranks. bench_scaling tells what sums\n"
    "cost a step.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Net and steps", {"net", "batch", "precision", "tf32", "rounds", "steps", "digest"}},
    {"Devices and memory", {"device", "device_memory", "planner", "threads", "autotune", "replay"}},
    {"Ranks", {"allreduce", "shard_optimizer"}},
};

// Small: the same batch again and again must not diverge.
constexpr double kLearningRate = 1e-4;

// A line of /proc/self/status, in bytes.
size_t StatusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    size_t kib = 0;
    if (words >> name >> kib && name == key + ":") return kib * 1024;
  }
  return 0;
}

// Gives back what is free, and sets the peak of resident memory to what is resident now.
void ResetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

struct StepBenchOptions {
  DeviceFlags device;
  DType compute = DType::kF32;
  int64_t batch = 64;                        // over all ranks
  PlannerKind planner = PlannerKind::kAuto;  // used if device.memory does not hold all
};

class StepBench {
 public:
  // net, the device and communication must outlive the result.  Several ranks sum in this device's
  // memory, so the device must outlive communication.
  static absl::StatusOr<std::unique_ptr<StepBench>> Create(const Parsed<NetConfig>& net,
                                                           const StepBenchOptions& options,
                                                           const DeviceChoice& choice,
                                                           ProcessGroup& communication) {
    const bool several = communication.size() > 1;
    // The first use of libraries is nobody's memory: a net of one image comes and goes before.
    if (options.device.kind != "cuda" && options.batch > 1 && !several) {
      StepBenchOptions one = options;
      one.batch = 1;
      one.device.memory.clear();
      ASSIGN_OR_RETURN(const DeviceChoice first, OpenDevice(one.device));
      RETURN_IF_ERROR(Create(net, one, first, communication).status());
    }
    std::unique_ptr<StepBench> bench(new StepBench(net, options, choice, communication));
    ASSIGN_OR_RETURN(bench->stream_, choice.device->NewStream());
    if (several) RETURN_IF_ERROR(communication.UseDevice(*choice.device));
    RETURN_IF_ERROR(bench->CreateModel());
    if (!options.device.memory.empty()) return bench;
    ASSIGN_OR_RETURN(bench->peaks_, DevicePeaks::Create(*choice.device, *choice.primitives,
                                                        options.compute, *bench->stream_));
    return bench;
  }

  // All ranks at once.  Measures the peaks, then `steps` steps, which end before the clock stops.
  absl::Status Round(int steps) {
    // Streams of a CPU set the OpenMP threads of the thread that makes them, which others share.
    ASSIGN_OR_RETURN(turn_, choice_.device->NewStream());
    while (step_->in_flight() > 0) RETURN_IF_ERROR(step_->Finish().status());
    if (peaks_) {
      ASSIGN_OR_RETURN(rates_.emplace_back(), peaks_->Measure(*stream_));
    }
    if (communication_.size() > 1) RETURN_IF_ERROR(communication_.Barrier());
    const BenchClock::time_point start = BenchClock::now();
    for (int s = 0; s < steps; ++s) RETURN_IF_ERROR(Step());
    while (step_->in_flight() > 0) RETURN_IF_ERROR(step_->Finish().status());
    seconds_.push_back(SecondsSince(start) / steps);
    return absl::OkStatus();
  }

  // The digest that `train` prints, after all steps so far.  Precondition: one rank.
  absl::StatusOr<std::string> Sha256OfWeights() { return model_->Sha256OfWeights(*stream_); }
  // Drops the rounds so far, as a warm-up.
  void Forget() {
    seconds_.clear();
    rates_.clear();
  }
  // Medians over the rounds.  Precondition: there is a round.
  nlohmann::ordered_json Report() const {
    const double seconds = Median(seconds_);
    const auto [fastest, slowest] = std::ranges::minmax(seconds_);
    const ModelPlan& plan = model_->plan();
    const bool gpu = choice_.device->kind() == DeviceKind::kCuda;
    nlohmann::ordered_json report = {
        {"benchmark", "training step"},
        {"engine", "gyre"},
        {"net", net_.message->name()},
        {"device", gpu ? choice_.device->description() : options_.device.kind},
        {"precision",
         gpu && options_.device.tf32 ? "TF32" : std::string(DTypeName(options_.compute))},
        {"batch", options_.batch},
        {"ranks", communication_.size()},
        {"threads", choice_.threads},
        {"rounds", seconds_.size()},
        {"ms_per_step", seconds * 1e3},
        {"ms_min", fastest * 1e3},
        {"ms_max", slowest * 1e3},
        {"images_per_second", static_cast<double>(options_.batch) / seconds},
        {"mflop_per_step", flops_ / 1e6},
        {"replay", absl::GetFlag(FLAGS_replay)},
        {"graph_nodes", step_->graph_nodes()},
        {"refusal", std::string(step_->refusal().message())},
        {"choices", std::vector<std::string>(
                        absl::StrSplit(choice_.primitives->choices(), '\n', absl::SkipEmpty()))},
        {"initialize_s", initialize_seconds_},
        {"planned_bytes", plan.device_bytes() + plan.communication_bytes()},
        {"resident_growth_bytes", resident_growth_}};
    if (peaks_) {
      const auto median = [&](double DevicePeaks::Rates::*of) {
        std::vector<double> values;
        for (const DevicePeaks::Rates& rates : rates_) values.push_back(rates.*of);
        return Median(std::move(values));
      };
      std::vector<double> shares;
      for (size_t r = 0; r < seconds_.size(); ++r) {
        shares.push_back(flops_ / seconds_[r] / rates_[r].gemm_flops);
      }
      report.update({{"gemm_gflops", median(&DevicePeaks::Rates::gemm_flops) / 1e9},
                     {"gemm_share", Median(shares)},
                     {"device_copy_gb_per_s", median(&DevicePeaks::Rates::device_bytes) / 1e9},
                     {"upload_gb_per_s", median(&DevicePeaks::Rates::upload_bytes) / 1e9},
                     {"download_gb_per_s", median(&DevicePeaks::Rates::download_bytes) / 1e9}});
    }
    if (plan.pages()) {
      const PagingPlan& paging = *plan.train->paging;
      report.update({{"page_bytes", plan.page_bytes()},
                     {"fetched_bytes", paging.fetched_bytes},
                     {"written_bytes", paging.written_bytes},
                     {"predicted_ms", paging.seconds * 1e3},
                     {"predicted_stalled_ms", paging.stalled_seconds * 1e3}});
    }
    return report;
  }

 private:
  StepBench(const Parsed<NetConfig>& net, const StepBenchOptions& options,
            const DeviceChoice& choice, ProcessGroup& communication)
      : net_(net), options_(options), choice_(choice), communication_(communication) {}

  absl::Status CreateModel() {
    Device& device = *choice_.device;
    OptimizerConfig optimizer;
    optimizer.mutable_sgd()->set_momentum(0.9f);
    optimizer_ = NewOptimizer(optimizer);
    ResetPeak();
    const size_t before = StatusBytes("VmRSS");
    const bool several = communication_.size() > 1, shards = absl::GetFlag(FLAGS_shard_optimizer);
    const std::string allreduce = absl::GetFlag(FLAGS_allreduce);
    const bool on_device = several && device.kind() != DeviceKind::kCpu &&
                           communication_.sums_device_memory() && !shards;
    ModelOptions options = {
        .shape = {.global = options_.batch,
                  .rank = communication_.rank(),
                  .ranks = communication_.size(),
                  .compute = options_.compute,
                  .shard_optimizer = several && shards},
        .slots = optimizer_->slot_names(),
        .bucket_bytes = several ? communication_.WorthwhileBytes() : ModelOptions().bucket_bytes,
        .fit_buckets = several,
        .can_send_rows = CheckHalves(allreduce).ok(),
        .recompute = device.kind() != DeviceKind::kCuda,
        .feed = FeedOn(device.kind(), FeedOfBytes(*net_.message)),
        .capacity_bytes = device.capacity_bytes(),
        .pages = {.planner = PlannerOn(device.kind(), options_.planner)},
        .device_allreduce = on_device ? allreduce : "",
        .primitives = choice_.primitives.get()};
    if (choice_.tune) {
      ModelOptions anywhere = options;
      anywhere.capacity_bytes = ~size_t{0};
      RETURN_IF_ERROR(choice_.tune([&] { return PlanModel(net_, anywhere).status(); }));
    }
    ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(net_, options));
    for (const NetNode& node : plan.train->spec.nodes) {
      flops_ += node.spec.forward_flops + (node.backward ? node.spec.backward_flops : 0);
    }
    RETURN_IF_ERROR(CreateBatch(*plan.train));
    ASSIGN_OR_RETURN(model_, Model::Create(std::move(plan), device, *stream_,
                                           several ? &communication_ : nullptr));
    const BenchClock::time_point start = BenchClock::now();
    RETURN_IF_ERROR(model_->Initialize(*stream_));
    initialize_seconds_ = SecondsSince(start);
    RETURN_IF_ERROR(CreateStep());
    // Each lane of the step is captured in its second step; of one that was planned anew, by then
    // or in the warm-up.
    for (int s = 0; s < 2 * kMostStepsInFlight; ++s) {
      RETURN_IF_ERROR(s == 1 && model_->plan().pages() ? PlanPagesAnew() : Step());
    }
    resident_growth_ = StatusBytes("VmHWM") - std::min(before, StatusBytes("VmHWM"));
    return absl::OkStatus();
  }

  absl::Status CreateStep() {
    ASSIGN_OR_RETURN(step_, TrainingStep::Create(*model_, *optimizer_, *choice_.device, *stream_,
                                                 communication_, absl::GetFlag(FLAGS_replay)));
    return absl::OkStatus();
  }

  // A step, after which pages are planned by what it took, as Trainer does.
  absl::Status PlanPagesAnew() {
    if (options_.planner != PlannerKind::kAuto || communication_.size() > 1) return Step();
    ASSIGN_OR_RETURN(const std::vector<double> seconds,
                     step_->StartTimed(batch_.batch, steps_++, kLearningRate));
    while (step_->in_flight() > 0) RETURN_IF_ERROR(step_->Finish().status());
    ASSIGN_OR_RETURN(const bool faster, model_->PlanPagesAnew(*stream_, seconds));
    return faster ? CreateStep() : absl::OkStatus();
  }

  absl::Status CreateBatch(const NetPlan& plan) {
    const auto integer = [&](int input, int64_t element) {
      constexpr auto kAny = std::numeric_limits<int32_t>::max();
      const auto classes = static_cast<uint32_t>(LargestTaken(plan.spec, input, kAny - 1) + 1);
      // Sequences are an eighth of the longest or more.
      const uint32_t least = plan.spec.values[input].name == "lengths" ? (classes - 1) / 8 : 0;
      const RandomBits bits = Philox(/*key=*/2, 0, static_cast<uint64_t>(element));
      return static_cast<int64_t>(least + bits.v[0] % (classes - least));
    };
    ASSIGN_OR_RETURN(batch_, RandomBatch(*choice_.device, plan, integer));
    return absl::OkStatus();
  }

  absl::Status Step() {
    RETURN_IF_ERROR(step_->Start(batch_.batch, steps_++, kLearningRate));
    return step_->in_flight() == kMostStepsInFlight ? step_->Finish().status() : absl::OkStatus();
  }

  const Parsed<NetConfig>& net_;
  const StepBenchOptions options_;
  const DeviceChoice& choice_;
  ProcessGroup& communication_;
  std::unique_ptr<Stream> stream_, turn_;
  OwnedBatch batch_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<DevicePeaks> peaks_;  // null where memory is bounded and has no room for them
  double flops_ = 0;                    // of a step
  int64_t steps_ = 0;
  double initialize_seconds_ = 0;
  size_t resident_growth_ = 0;
  // By round.
  std::vector<double> seconds_;            // of a step
  std::vector<DevicePeaks::Rates> rates_;  // none where memory is bounded
};

absl::Status Bench(const Parsed<NetConfig>& net, const StepBenchOptions& options,
                   ProcessGroup& communication, const DeviceChoice& device) {
  const int rounds = absl::GetFlag(FLAGS_rounds), steps = absl::GetFlag(FLAGS_steps);
  // Of several ranks, one alone has the standard input.
  RETURN_IF_ERROR(CheckLeast(communication.size() > 1 ? 1 : 0, {FLAGS_rounds}));
  // Each rank needs a sample.
  RETURN_IF_ERROR(CheckLeast(communication.size(), {FLAGS_batch}));
  if (absl::GetFlag(FLAGS_digest) && communication.size() > 1) {
    return absl::InvalidArgumentError("--digest: of one rank alone");
  }
  ASSIGN_OR_RETURN(const auto bench, StepBench::Create(net, options, device, communication));
  RETURN_IF_ERROR(bench->Round(steps));
  bench->Forget();  // a warm-up
  int measured = 0;
  for (; AnotherRound(measured, rounds); ++measured) RETURN_IF_ERROR(bench->Round(steps));
  if (measured == 0 || communication.rank() != 0) return absl::OkStatus();
  nlohmann::ordered_json report = bench->Report();
  if (absl::GetFlag(FLAGS_digest)) {
    ASSIGN_OR_RETURN(report["weights_sha256"], bench->Sha256OfWeights());
  }
  PrintRow(report);
  return absl::OkStatus();
}

absl::Status Run() {
  if (absl::GetFlag(FLAGS_net).empty()) {
    return absl::InvalidArgumentError("--net is missing; see --help");
  }
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_steps}));
  const std::string allreduce = absl::GetFlag(FLAGS_allreduce);
  StepBenchOptions options = {.device = {.kind = absl::GetFlag(FLAGS_device),
                                         .memory = absl::GetFlag(FLAGS_device_memory),
                                         .threads = absl::GetFlag(FLAGS_threads),
                                         .tf32 = absl::GetFlag(FLAGS_tf32),
                                         .autotune = absl::GetFlag(FLAGS_autotune)},
                              .batch = absl::GetFlag(FLAGS_batch)};
  ASSIGN_OR_RETURN(options.compute,
                   TypeNamed("precision", absl::GetFlag(FLAGS_precision),
                             {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
  ASSIGN_OR_RETURN(options.planner, PlannerNamed("planner", absl::GetFlag(FLAGS_planner)));
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(absl::GetFlag(FLAGS_net)));
  ASSIGN_OR_RETURN(Ranks ranks, JoinRanks({allreduce}));
  if (absl::GetFlag(FLAGS_shard_optimizer)) {
    RETURN_IF_ERROR(Annotate(CheckHalves(allreduce), "--shard_optimizer"));
  }
  return RunRanks(std::move(ranks), options.device,
                  [&](ProcessGroup& communication, const DeviceChoice& device) {
                    return Bench(net, options, communication, device);
                  });
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  gyre::LetWaitingThreadsSleep(argv);
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Run);
}
