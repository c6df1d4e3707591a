// bench_scaling: what the other ranks cost a training step.  Each rank's steps are timed twice in
// turn, on its share of the batch: alone, and with its gradients summed over all.  What the latter
// takes longer is exposed communication.

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/data/files/text_file.h"
#include "engine/runtime/device/forwarding_stream.h"
#include "engine/training/step/owned_batch.h"
#include "engine/training/step/training_step.h"
#include "tools/bench/bench.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/process.h"

ABSL_FLAG(std::string, net, "", "Text file of the net.");
ABSL_FLAG(int, batch, 64, "Samples a step, over all ranks.");
ABSL_FLAG(std::string, device, "cpu", "cpu or sim.");
ABSL_FLAG(int, threads, 1, "Threads of each rank.");
ABSL_FLAG(int, ranks, 1, "Ranks as threads of this process, without mpirun.");
ABSL_FLAG(std::string, allreduce, "auto", "Algorithm by which ranks sum gradients.");
ABSL_FLAG(std::string, calibration, "",
          "File of bench_allreduce --calibrate, for bucket sizes and \"auto\".");
ABSL_FLAG(double, compute_ms, 0,
          "Milliseconds of sleep in place of a step's layers.  0: run the layers.");
ABSL_FLAG(int, rounds, 9, "Rounds.  Each times steps alone and with sums.");
ABSL_FLAG(int, steps, 10, "Steps a round.");

namespace gyre {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr char kUsage[] =
    "measures what sums of gradients add to a training step.\n"
    "\n"
    "  mpirun -np 2 bench_scaling --net=models/lenet/net.textproto --batch=128\n"
    "  tools/namespaces --hosts=4 bazel-bin/tools/bench/bench_scaling \\\n"
    "    --net=models/lenet/net.textproto --compute_ms=60\n"
    "\n"
    "The step is of SGD with momentum on zeros.\n"
    "Prints a JSON line of medians over rounds on rank 0. It has a step alone, a step\n"
    "with sums, the difference, and the sums of all buckets without any compute.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags",
     {"net", "batch", "device", "threads", "ranks", "allreduce", "calibration", "compute_ms",
      "rounds", "steps"}},
};

// Work that is only waited for, where `piece` is not 0; counts it.
class PacedStream final : public ForwardingStream {
 public:
  using ForwardingStream::ForwardingStream;
  void Pace(Seconds piece) { piece_ = piece; }
  int pieces() const { return pieces_; }

  absl::Status Call(std::function<absl::Status()> work) override {
    ++pieces_;
    if (piece_ == Seconds(0)) return ForwardingStream::Call(std::move(work));
    return ForwardingStream::Call(SleptWork(piece_));
  }

 private:
  Seconds piece_{0};
  int pieces_ = 0;
};

// A net that trains on `batch` samples over the ranks of `communication`.
class Subject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Create(const Parsed<NetConfig>& net,
                                                         int64_t batch, const DeviceChoice& choice,
                                                         ProcessGroup& communication) {
    std::unique_ptr<Subject> subject(new Subject(communication));
    Device& device = *choice.device;
    OptimizerConfig optimizer;
    optimizer.mutable_sgd()->set_momentum(0.9f);
    subject->optimizer_ = NewOptimizer(optimizer);
    const bool several = communication.size() > 1;
    ASSIGN_OR_RETURN(
        ModelPlan plan,
        PlanModel(net, {.shape = {.global = batch,
                                  .rank = communication.rank(),
                                  .ranks = communication.size()},
                        .slots = subject->optimizer_->slot_names(),
                        .bucket_bytes = several ? communication.WorthwhileBytes() : size_t{1} << 20,
                        .fit_buckets = several,
                        .feed = FeedOn(device.kind(), FeedOfBytes(*net.message)),
                        .primitives = choice.primitives.get()}));
    ASSIGN_OR_RETURN(subject->device_stream_, device.NewStream());
    subject->stream_ = std::make_unique<PacedStream>(*subject->device_stream_);
    ASSIGN_OR_RETURN(subject->model_,
                     Model::Create(std::move(plan), device, *subject->stream_, &communication));
    RETURN_IF_ERROR(subject->model_->Initialize(*subject->stream_));
    RETURN_IF_ERROR(subject->CreateStep(device));
    return subject;
  }

  const Model& model() const { return *model_; }

  // A step's compute is to take so long.
  absl::Status Pace(Seconds compute) {
    const int before = stream_->pieces();
    RETURN_IF_ERROR(Steps(1));
    pieces_ = stream_->pieces() - before;
    if (compute > Seconds(0)) stream_->Pace(compute / pieces_);
    return absl::OkStatus();
  }

  // Of work in a step: an update of a bucket is one.
  int pieces() const { return pieces_; }

  // Of them, those of a layer's forward and of its backward, as simulate_scaling has layers: a node
  // that is cut is several, and its backward begins with the last.
  absl::StatusOr<std::vector<std::array<int, 2>>> PiecesOfLayers() {
    const Net& net = model_->train();
    const NetPlan& plan = net.plan();
    std::vector<int> found(plan.trace.trace.steps.size());
    int at = 0, before = stream_->pieces();
    const auto enter = [&](int step) {
      found[at] += stream_->pieces() - std::exchange(before, stream_->pieces());
      at = step;
      return absl::OkStatus();
    };
    const auto sum = [](Stream&, absl::string_view, Tensor) { return absl::OkStatus(); };
    const auto other = [](int, const Instruction&) { return absl::OkStatus(); };
    RETURN_IF_ERROR(net.Run(*stream_, sum, other, enter));
    RETURN_IF_ERROR(enter(at));
    std::vector<size_t> first;  // by node: of its layers
    size_t all = 0;
    for (const NetNode& node : plan.spec.nodes) {
      first.push_back(all);
      all += node.spec.slices;
    }
    std::vector<std::array<int, 2>> layers(all);
    for (size_t step = 0; step < found.size(); ++step) {
      const auto [kind, n, piece] = plan.trace.program[step];
      if (kind == InstructionKind::kForward) layers[first[n] + piece][0] = found[step];
      if (kind != InstructionKind::kBackward) continue;
      layers[first[n] + plan.spec.nodes[n].spec.slices - 1 - piece][1] = found[step];
    }
    return layers;
  }

  absl::Status Steps(int steps) {
    for (int s = 0; s < steps; ++s) {
      RETURN_IF_ERROR(step_->Start(batch_.batch, steps_++, /*learning_rate=*/1e-6));
      if (step_->in_flight() == kMostStepsInFlight) RETURN_IF_ERROR(step_->Finish().status());
    }
    while (step_->in_flight() > 0) RETURN_IF_ERROR(step_->Finish().status());
    return stream_->Synchronize();
  }

  // All buckets', of gradients in host memory.
  absl::Status Sums(int times) {
    std::vector<ProcessGroup::Ticket> tickets;
    for (; times > 0; --times) {
      tickets.clear();
      for (size_t b = 0; b < sums_.size(); ++b) {
        tickets.push_back(communication_.Submit(absl::StrCat("bucket ", b), sums_[b], nullptr));
      }
      for (const auto ticket : tickets) RETURN_IF_ERROR(communication_.Wait(ticket).status());
    }
    return absl::OkStatus();
  }

 private:
  explicit Subject(ProcessGroup& communication) : communication_(communication) {}

  absl::Status CreateStep(Device& device) {
    ASSIGN_OR_RETURN(batch_, OwnedBatch::Create(device, model_->train().plan()));
    std::memset(batch_.memory.data(), 0, batch_.memory.bytes());
    // Work that was captured would not come by the stream.
    ASSIGN_OR_RETURN(step_,
                     TrainingStep::Create(*model_, *optimizer_, device, *stream_, communication_,
                                          /*replay=*/absl::GetFlag(FLAGS_compute_ms) == 0));
    const size_t buckets = model_->train().plan().order.buckets.size();
    size_t bytes = 0;
    for (size_t b = 0; b < buckets; ++b) {
      sums_.push_back(model_->train().bucket(static_cast<int>(b)));
      bytes += sums_.back().bytes();
    }
    ASSIGN_OR_RETURN(std::byte * memory, communication_.Share(bytes));
    if (memory == nullptr) {
      ASSIGN_OR_RETURN(sums_memory_, Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes));
      std::memset(sums_memory_.data(), 0, bytes);
      memory = sums_memory_.data();
    }
    for (Tensor& sum : sums_) {
      sum.data = memory;
      memory += sum.bytes();
    }
    return absl::OkStatus();
  }

  ProcessGroup& communication_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Stream> device_stream_;
  std::unique_ptr<PacedStream> stream_;
  std::unique_ptr<Model> model_;
  OwnedBatch batch_;
  Buffer sums_memory_;
  std::vector<Tensor> sums_;  // as the buckets
  std::unique_ptr<TrainingStep> step_;
  int64_t steps_ = 0;
  int pieces_ = 0;
};

absl::Status Bench(const Parsed<NetConfig>& net, ProcessGroup& communication,
                   const DeviceChoice& choice) {
  if (communication.size() > 1) RETURN_IF_ERROR(communication.UseDevice(*choice.device));
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  const Share share = ShareOf(batch, communication.rank(), communication.size());
  ASSIGN_OR_RETURN(const auto nobody,
                   ProcessGroup::Start(
                       []() -> absl::StatusOr<std::unique_ptr<Communicator>> {
                         return std::move(NewThreadCommunicators(1, 1000 * kStallTimeoutS)[0]);
                       },
                       {"ring"}));
  ASSIGN_OR_RETURN(const auto alone, Subject::Create(net, share.count, choice, *nobody));
  ASSIGN_OR_RETURN(const auto together, Subject::Create(net, batch, choice, communication));
  const Seconds compute(absl::GetFlag(FLAGS_compute_ms) / 1000);
  RETURN_IF_ERROR(alone->Pace(compute));
  RETURN_IF_ERROR(together->Pace(compute));
  ASSIGN_OR_RETURN(const auto layers, alone->PiecesOfLayers());
  const int steps = absl::GetFlag(FLAGS_steps);
  const auto milliseconds = [&](auto&& work, std::vector<double>& to) {
    RETURN_IF_ERROR(communication.Barrier());
    const BenchClock::time_point start = BenchClock::now();
    RETURN_IF_ERROR(work());
    to.push_back(SecondsSince(start) * 1000 / steps);
    return absl::OkStatus();
  };
  std::vector<double> alone_ms, step_ms, sum_ms;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    RETURN_IF_ERROR(milliseconds([&] { return alone->Steps(steps); }, alone_ms));
    RETURN_IF_ERROR(milliseconds([&] { return together->Steps(steps); }, step_ms));
    RETURN_IF_ERROR(milliseconds([&] { return together->Sums(steps); }, sum_ms));
    if (round < 0) alone_ms = step_ms = sum_ms = {};  // a warm-up
  }
  if (communication.rank() != 0) return absl::OkStatus();
  const double step = Median(step_ms), exposed = step - Median(alone_ms);
  PrintRow({{"net", net.message->name()},
            {"ranks", communication.size()},
            {"batch", batch},
            {"allreduce", communication.DescribeAllreduce()},
            {"buckets", together->model().train().plan().order.buckets.size()},
            {"pieces", together->pieces()},
            {"layers", layers},
            {"samples_per_second", static_cast<double>(batch) * 1000 / step},
            {"step_ms", step},
            {"alone_ms", Median(alone_ms)},
            {"sums_ms", Median(sum_ms)},
            {"exposed_ms", exposed},
            {"exposed_share", exposed / step}});
  return absl::OkStatus();
}

absl::Status Run() {
  if (absl::GetFlag(FLAGS_net).empty()) {
    return absl::InvalidArgumentError("--net is missing; see --help");
  }
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_rounds, FLAGS_steps}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_compute_ms}));
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(absl::GetFlag(FLAGS_net)));
  AllreduceChoice allreduce = {absl::GetFlag(FLAGS_allreduce)};
  if (const std::string path = absl::GetFlag(FLAGS_calibration); !path.empty()) {
    ASSIGN_OR_RETURN(allreduce.calibration, ReadText(path));
    RETURN_IF_ERROR(Annotate(Selector::Calibrated(allreduce.calibration, {}).status(), path));
  }
  ASSIGN_OR_RETURN(Ranks ranks, JoinRanks(allreduce, absl::GetFlag(FLAGS_ranks)));
  // Each rank needs a sample.
  RETURN_IF_ERROR(CheckLeast(ranks.front()->size(), {FLAGS_batch}));
  return RunRanks(std::move(ranks),
                  {.kind = absl::GetFlag(FLAGS_device), .threads = absl::GetFlag(FLAGS_threads)},
                  [&](ProcessGroup& communication, const DeviceChoice& choice) {
                    return Bench(net, communication, choice);
                  });
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  gyre::LetWaitingThreadsSleep(argv);
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Run);
}
