#include "tools/bench/step_bench.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"
#include "engine/runtime/random.h"
#include "tools/bench/bench.h"

namespace gyre {
namespace {

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

void FillBytes(const Tensor& to) {
  for (int64_t i = 0; i < to.elements(); ++i) {
    to.as<uint8_t>()[i] = static_cast<uint8_t>(Philox(/*key=*/1, 0, static_cast<uint64_t>(i)).v[0]);
  }
}

// How many values, from 0 on, all layers that read a label take.
int64_t Classes(const NetSpec& net, int label) {
  int64_t classes = std::numeric_limits<int32_t>::max();
  for (const int consumer : net.values[label].consumers) {
    const NetNode& node = net.nodes[consumer];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int64_t largest = node.spec.states[i].largest;
      if (node.inputs[i] == label && largest >= 0) classes = std::min(classes, largest + 1);
    }
  }
  return classes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepBench>> StepBench::Create(const Parsed<NetConfig>& net,
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

absl::Status StepBench::CreateModel() {
  Device& device = *choice_.device;
  OptimizerConfig optimizer;
  optimizer.mutable_sgd()->set_momentum(0.9f);
  optimizer_ = NewOptimizer(optimizer);
  ResetPeak();
  const size_t before = StatusBytes("VmRSS");
  const bool several = communication_.size() > 1;
  const bool on_device = several && device.kind() != DeviceKind::kCpu &&
                         communication_.sums_device_memory() && !options_.shard_optimizer;
  ModelOptions options = {
      .shape = {.global = options_.batch,
                .rank = communication_.rank(),
                .ranks = communication_.size(),
                .compute = options_.compute,
                .shard_optimizer = several && options_.shard_optimizer},
      .slots = optimizer_->slot_names(),
      .bucket_bytes = several ? communication_.WorthwhileBytes() : ModelOptions().bucket_bytes,
      .fit_buckets = several,
      .can_send_rows = CheckHalves(options_.allreduce).ok(),
      .feed = FeedOn(device.kind(), FeedOfBytes(*net_.message)),
      .capacity_bytes = device.capacity_bytes(),
      .pages = {.planner = PlannerOn(device.kind(), options_.planner)},
      .device_allreduce = on_device ? options_.allreduce : "",
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
  // Each lane of the step is captured in its second step; of one that was planned anew, by then or
  // in the warm-up.
  for (int s = 0; s < 2 * kMostStepsInFlight; ++s) {
    RETURN_IF_ERROR(s == 1 && model_->plan().pages() ? PlanPagesAnew() : Step());
  }
  resident_growth_ = StatusBytes("VmHWM") - std::min(before, StatusBytes("VmHWM"));
  return absl::OkStatus();
}

absl::Status StepBench::CreateStep() {
  ASSIGN_OR_RETURN(step_, TrainingStep::Create(*model_, *optimizer_, *choice_.device, *stream_,
                                               communication_, options_.replay));
  return absl::OkStatus();
}

// A step, after which pages are planned by what it took, as Trainer does.
absl::Status StepBench::PlanPagesAnew() {
  if (options_.planner != PlannerKind::kAuto || communication_.size() > 1) return Step();
  ASSIGN_OR_RETURN(const std::vector<double> seconds,
                   step_->StartTimed(batch_, steps_++, kLearningRate));
  while (step_->in_flight() > 0) RETURN_IF_ERROR(step_->Finish().status());
  ASSIGN_OR_RETURN(const bool faster, model_->PlanPagesAnew(*stream_, seconds));
  return faster ? CreateStep() : absl::OkStatus();
}

absl::Status StepBench::CreateBatch(const NetPlan& plan) {
  std::vector<Tensor> arrays = BatchArrays(plan);
  ASSIGN_OR_RETURN(batch_memory_,
                   Buffer::Allocate(*choice_.device, MemoryKind::kPinnedHost, BatchBytes(arrays)));
  batch_ = BatchAt(batch_memory_.data(), std::move(arrays));
  for (size_t i = 0; i < batch_.arrays.size(); ++i) {
    const Tensor& array = batch_.arrays[i];
    if (array.dtype == DType::kI32) {
      const auto classes = static_cast<uint32_t>(Classes(plan.spec, static_cast<int>(i)));
      // Sequences are an eighth of the longest or more.
      const uint32_t least = plan.spec.values[i].name == "lengths" ? (classes - 1) / 8 : 0;
      for (int64_t k = 0; k < array.elements(); ++k) {
        const RandomBits bits = Philox(/*key=*/2, 0, static_cast<uint64_t>(k));
        array.as<int32_t>()[k] = static_cast<int32_t>(least + bits.v[0] % (classes - least));
      }
    } else if (array.dtype == DType::kU8) {
      FillBytes(array);
    } else {
      FillUniform(array);
    }
  }
  batch_.samples.resize(static_cast<size_t>(plan.spec.shape.local));
  std::iota(batch_.samples.begin(), batch_.samples.end(), 0);
  return absl::OkStatus();
}

absl::Status StepBench::Step() {
  RETURN_IF_ERROR(step_->Start(batch_, steps_++, kLearningRate));
  return step_->in_flight() == kMostStepsInFlight ? step_->Finish().status() : absl::OkStatus();
}

absl::Status StepBench::Round(int steps) {
  // Streams of a CPU set the OpenMP threads of the thread that makes them, which others share.
  ASSIGN_OR_RETURN(turn_, choice_.device->NewStream());
  while (step_->in_flight() > 0) RETURN_IF_ERROR(step_->Finish().status());
  MeasuredRound measured;
  if (peaks_) {
    ASSIGN_OR_RETURN(measured.peaks, peaks_->Measure(*stream_));
  }
  if (communication_.size() > 1) RETURN_IF_ERROR(communication_.Barrier());
  const BenchClock::time_point start = BenchClock::now();
  for (int s = 0; s < steps; ++s) RETURN_IF_ERROR(Step());
  while (step_->in_flight() > 0) RETURN_IF_ERROR(step_->Finish().status());
  measured.step_seconds = SecondsSince(start) / steps;
  rounds_.push_back(measured);
  return absl::OkStatus();
}

nlohmann::ordered_json StepBench::Report() const {
  const auto median = [&](const auto& of) {
    std::vector<double> values;
    for (const MeasuredRound& round : rounds_) values.push_back(of(round));
    return Median(std::move(values));
  };
  const auto [fastest, slowest] = std::minmax_element(
      rounds_.begin(), rounds_.end(), [](const MeasuredRound& a, const MeasuredRound& b) {
        return a.step_seconds < b.step_seconds;
      });
  const double seconds = median([](const MeasuredRound& round) { return round.step_seconds; });
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
      {"rounds", rounds_.size()},
      {"ms_per_step", seconds * 1e3},
      {"ms_min", fastest->step_seconds * 1e3},
      {"ms_max", slowest->step_seconds * 1e3},
      {"images_per_second", static_cast<double>(options_.batch) / seconds},
      {"mflop_per_step", flops_ / 1e6},
      {"replay", options_.replay},
      {"graph_nodes", step_->graph_nodes()},
      {"refusal", std::string(step_->refusal().message())},
      {"choices", std::vector<std::string>(
                      absl::StrSplit(choice_.primitives->choices(), '\n', absl::SkipEmpty()))},
      {"initialize_s", initialize_seconds_},
      {"planned_bytes", plan.device_bytes() + plan.communication_bytes()},
      {"resident_growth_bytes", resident_growth_}};
  if (peaks_) {
    report.update(
        {{"gemm_gflops", median([](const MeasuredRound& r) { return r.peaks.gemm_flops; }) / 1e9},
         {"gemm_share", median([&](const MeasuredRound& r) {
            return flops_ / r.step_seconds / r.peaks.gemm_flops;
          })},
         {"device_copy_gb_per_s",
          median([](const MeasuredRound& r) { return r.peaks.device_bytes; }) / 1e9},
         {"upload_gb_per_s",
          median([](const MeasuredRound& r) { return r.peaks.upload_bytes; }) / 1e9},
         {"download_gb_per_s",
          median([](const MeasuredRound& r) { return r.peaks.download_bytes; }) / 1e9}});
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

}  // namespace gyre
