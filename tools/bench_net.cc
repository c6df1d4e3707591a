// bench_net: how long a training step takes, against the matrix-multiplication peak of the same
// machine in the same minute.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/buffer.h"
#include "engine/training/training_step.h"
#include "tools/command_line.h"

ABSL_FLAG(std::string, trainer, "", "The trainer's text file; it names the net and the data.");
ABSL_FLAG(std::string, threads, "1,2", "Thread counts to measure, with commas.");
ABSL_FLAG(int, rounds, 15, "Rounds; each measures every thread count once, in turn.");
ABSL_FLAG(int, steps, 10, "Steps a round.");
ABSL_FLAG(std::string, set, "", "path=value for any field of the trainer or the net (net....).");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures training steps on the CPU, one rank.\n\n"
    "  bench_net --trainer=models/lenet/trainer.textproto --set batch=64\n\n"
    "Prints a JSON line for each thread count: medians over interleaved rounds; gemm_share is the\n"
    "net's FLOPs a second over those of a 2048 x 2048 x 2048 product in the same round.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

using Clock = std::chrono::steady_clock;

// 2048 is where the CPU's F32 rate has levelled off.
constexpr int64_t kGemmSize = 2048;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

// Sets the peak of resident memory back to what is resident now.
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

struct Spread {
  double median, low, high;
};
Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

// One thread count: the net, its step, and a matrix product.
class Subject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Create(const Files& files, int threads,
                                                         CommunicationThread& communication) {
    auto subject = std::make_unique<Subject>();
    ASSIGN_OR_RETURN(DeviceChoice choice, OpenDevice({.kind = "cpu", .threads = threads}));
    subject->threads_ = threads;
    subject->device_ = std::move(choice.device);
    subject->primitives_ = std::make_unique<Primitives>(subject->device_->kind(), threads);
    RETURN_IF_ERROR(subject->CreateNet(files, communication));
    RETURN_IF_ERROR(subject->CreateGemm());
    return subject;
  }

  absl::Status Round(int steps) {
    // Streams set the OpenMP threads of the thread that makes them; subjects take turns on this
    // one.
    ASSIGN_OR_RETURN(turn_, device_->NewStream());
    const Clock::time_point gemm_start = Clock::now();
    RETURN_IF_ERROR(
        gemm_->Run(*stream_, a_.data(), b_.data(), nullptr, c_.data(), gemm_scratch_.data()));
    RETURN_IF_ERROR(stream_->Synchronize());
    gemm_flops_.push_back(2.0 * kGemmSize * kGemmSize * kGemmSize / SecondsSince(gemm_start));

    const Clock::time_point start = Clock::now();
    for (int s = 0; s < steps; ++s) RETURN_IF_ERROR(Step());
    while (step_->in_flight() > 0) RETURN_IF_ERROR(step_->Finish().status());
    step_seconds_.push_back(SecondsSince(start) / steps);
    return absl::OkStatus();
  }

  // Drops the warm-up's measurements.
  void Forget() {
    gemm_flops_.clear();
    step_seconds_.clear();
  }

  nlohmann::ordered_json Report(const std::string& net) const {
    const Spread seconds = SpreadOf(step_seconds_);
    std::vector<double> shares;
    for (size_t r = 0; r < step_seconds_.size(); ++r) {
      shares.push_back(flops_ / step_seconds_[r] / gemm_flops_[r]);
    }
    const ModelOptions& options = model_->plan().options;
    return {{"benchmark", "training step"},
            {"net", net},
            {"precision", options.compute == DType::kF64 ? "F64" : "F32"},
            {"batch", options.batch},
            {"threads", threads_},
            {"rounds", step_seconds_.size()},
            {"ms_per_step", seconds.median * 1e3},
            {"ms_min", seconds.low * 1e3},
            {"ms_max", seconds.high * 1e3},
            {"images_per_second", static_cast<double>(options.batch) / seconds.median},
            {"mflop_per_step", flops_ / 1e6},
            {"gemm_gflops", SpreadOf(gemm_flops_).median / 1e9},
            {"gemm_share", SpreadOf(shares).median},
            {"planned_bytes", model_->plan().device_bytes() + model_->plan().communication_bytes()},
            {"resident_growth_bytes", net_resident_}};
  }

 private:
  absl::Status CreateNet(const Files& files, CommunicationThread& communication) {
    const TrainerConfig& config = *files.trainer.message;
    optimizer_ = NewOptimizer(config.optimizer());
    ASSIGN_OR_RETURN(data_, OpenDataset(config.data().train(), config.data().normalization(),
                                        files.trainer.source->file()));
    ASSIGN_OR_RETURN(inputs_, MapInputs(files.net, config.data(), *data_));
    const DType dtype = ComputeTypeOf(config);
    ASSIGN_OR_RETURN(stream_, device_->NewStream());
    ASSIGN_OR_RETURN(
        loader_,
        BatchLoader::Create(*data_, SampleOrder(data_->size(), 1, /*shuffle=*/true), *device_,
                            {.dtype = dtype, .count = config.batch(), .advance = config.batch()}));
    ASSIGN_OR_RETURN(batch_, loader_->Next());
    ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(files.net, {.compute = dtype,
                                                           .batch = config.batch(),
                                                           .slots = optimizer_->slot_names(),
                                                           .bucket_bytes = static_cast<size_t>(
                                                               config.distributed().bucket_bytes()),
                                                           .primitives = primitives_.get()}));
    ResetPeak();
    const size_t before = StatusBytes("VmRSS");
    flops_ = 0;
    for (const NetNode& node : plan.train->spec.nodes) {
      flops_ += node.spec.forward_flops + (node.backward ? node.spec.backward_flops : 0);
    }
    ASSIGN_OR_RETURN(model_, Model::Create(std::move(plan), *device_, *stream_));
    RETURN_IF_ERROR(model_->Initialize(*stream_));
    ASSIGN_OR_RETURN(step_, TrainingStep::Create(*model_, *optimizer_, std::nullopt, inputs_,
                                                 *device_, *stream_, communication));
    for (int s = 0; s < 3; ++s) RETURN_IF_ERROR(Step());
    net_resident_ = StatusBytes("VmHWM") - std::min(before, StatusBytes("VmHWM"));
    return absl::OkStatus();
  }

  absl::Status CreateGemm() {
    ASSIGN_OR_RETURN(
        gemm_, primitives_->Prepare(GemmSpec{.m = kGemmSize, .n = kGemmSize, .k = kGemmSize}));
    ASSIGN_OR_RETURN(gemm_scratch_,
                     Buffer::Allocate(*device_, MemoryKind::kDevice, gemm_->scratch_bytes()));
    a_.assign(kGemmSize * kGemmSize, 0.5f);
    b_.assign(kGemmSize * kGemmSize, 0.25f);
    c_.assign(kGemmSize * kGemmSize, 0);
    return absl::OkStatus();
  }

  absl::Status Step() {
    StepScalars scalars;
    scalars.step = steps_++;
    scalars.learning_rate = 1e-4;  // small: the same batch again and again must not diverge
    RETURN_IF_ERROR(step_->Start(batch_, scalars));
    return step_->in_flight() == TrainingStep::kMostInFlight ? step_->Finish().status()
                                                             : absl::OkStatus();
  }

  int threads_ = 1;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Primitives> primitives_;
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<Stream> stream_, turn_;
  std::unique_ptr<BatchLoader> loader_;
  Batch batch_;
  InputMap inputs_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<Gemm> gemm_;
  std::vector<float> a_, b_, c_;
  Buffer gemm_scratch_;
  double flops_ = 0;
  uint64_t steps_ = 0;
  size_t net_resident_ = 0;
  std::vector<double> gemm_flops_, step_seconds_;
};

absl::Status Bench(const Files& files, CommunicationThread& communication) {
  if (absl::GetFlag(FLAGS_rounds) < 1 || absl::GetFlag(FLAGS_steps) < 1) {
    return absl::InvalidArgumentError("--rounds and --steps: expected 1 or more");
  }
  std::vector<std::unique_ptr<Subject>> subjects;
  for (absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_threads), ',')) {
    int threads = 0;
    if (!absl::SimpleAtoi(text, &threads) || threads < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--threads=", absl::GetFlag(FLAGS_threads), ": expected counts, as in 1,2"));
    }
    ASSIGN_OR_RETURN(subjects.emplace_back(), Subject::Create(files, threads, communication));
  }
  for (const auto& subject : subjects) {
    RETURN_IF_ERROR(subject->Round(absl::GetFlag(FLAGS_steps)));
    subject->Forget();
  }
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (const auto& subject : subjects) {
      RETURN_IF_ERROR(subject->Round(absl::GetFlag(FLAGS_steps)));
    }
  }
  for (const auto& subject : subjects) {
    std::printf("%s\n", subject->Report(files.net.message->name()).dump().c_str());
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv, kUsage);
  const auto files = ReadFiles(absl::GetFlag(FLAGS_trainer), SplitSet(absl::GetFlag(FLAGS_set)));
  if (!files.ok()) Fail(nullptr, files.status());
  const auto ranks = JoinRanks(files->trainer.message->distributed().allreduce());
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  CommunicationThread& communication = *ranks->front();
  const absl::Status status = Bench(*files, communication);
  if (!status.ok()) Fail(&communication, status);
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
