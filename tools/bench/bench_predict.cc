// bench_predict: how long a batch takes from the caller's memory through a net that is not trained,
// with random weights and inputs, which tools/peer/compare_latency sets beside onnxruntime.

#include <vector>

#include "engine/training/feed/feed_of.h"
#include "engine/training/model/fold_batch_norm.h"
#include "engine/training/model/model.h"
#include "engine/training/predict/prediction_net.h"
#include "engine/training/step/test_iteration.h"
#include "tools/bench/bench.h"
#include "tools/bench/random_batch.h"
#include "tools/command_line/devices.h"

ABSL_FLAG(std::string, net, "", "Text file of the net.  It is cut to what it predicts.");
ABSL_FLAG(int, batch, 1, "Samples a call.");
ABSL_FLAG(int, rounds, 15,
          "Rounds.  0: one a line of standard input, as tools/peer/compare_latency sends.");
ABSL_FLAG(int, calls, 20, "Calls a round.");
ABSL_FLAG(int, threads, 0, "Threads.  0: cores of this host.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures predictions: the time of a call with a batch.\n"
    "\n"
    "  bench_predict --net=models/resnet18/net.textproto --batch=1 --threads=2\n"
    "\n"
    "Prints a JSON line. A round's time is the median of its calls, and ms_per_call\n"
    "the median of rounds. A call copies the batch to the net's inputs, runs the net\n"
    "and copies the outputs back. Batch norms are folded into the layers before\n"
    "them. Waiting threads spin, as in a program that does nothing else meanwhile.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {{"Flags", {"net", "batch", "rounds", "calls", "threads"}}};

class PredictBench {
 public:
  static absl::StatusOr<std::unique_ptr<PredictBench>> Create(const Parsed<NetConfig>& net,
                                                              const DeviceChoice& choice) {
    auto bench = std::make_unique<PredictBench>();
    Device& device = *choice.device;
    const int batch = absl::GetFlag(FLAGS_batch);
    ASSIGN_OR_RETURN(bench->stream_, device.NewStream());
    ASSIGN_OR_RETURN(ModelPlan plan,
                     PlanModel(net, {.train = false,
                                     .shape = {.global = batch, .rank = 0, .ranks = 1},
                                     .test_batch = batch,
                                     .test_samples = batch,
                                     .feed = FeedOfValues(*net.message),
                                     .capacity_bytes = device.capacity_bytes(),
                                     .primitives = choice.primitives.get()}));
    ASSIGN_OR_RETURN(bench->model_, Model::Create(std::move(plan), device, *bench->stream_));
    RETURN_IF_ERROR(bench->model_->Initialize(*bench->stream_));
    const NetPlan& planned = bench->net().plan();
    // The largest: all layers take it, and sequences are whole.
    ASSIGN_OR_RETURN(bench->batch_, RandomBatch(device, planned, [&](int input, int64_t) {
                       return LargestTaken(planned.spec, input, /*otherwise=*/1);
                     }));
    ASSIGN_OR_RETURN(bench->iteration_, TestIteration::Create(device, bench->net(), nullptr));
    return bench;
  }

  absl::Status Round() {
    std::vector<double> seconds;
    for (int i = 0; i < absl::GetFlag(FLAGS_calls); ++i) {
      const auto start = BenchClock::now();
      RETURN_IF_ERROR(iteration_->Run(batch_.batch, *stream_));
      seconds.push_back(SecondsSince(start));
    }
    ms_.push_back(1e3 * Median(std::move(seconds)));
    return absl::OkStatus();
  }
  void Forget() { ms_.clear(); }

  nlohmann::ordered_json Report() const { return Spread("ms_per_call", ms_); }

 private:
  const Net& net() const { return *model_->test().front(); }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  OwnedBatch batch_;
  std::optional<TestIteration> iteration_;
  std::vector<double> ms_;  // of a call, by round
};

absl::Status Bench() {
  if (absl::GetFlag(FLAGS_net).empty()) {
    return absl::InvalidArgumentError("--net is missing; see --help");
  }
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_batch, FLAGS_calls}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_rounds, FLAGS_threads}));
  ASSIGN_OR_RETURN(Parsed<NetConfig> net, ParseNet(absl::GetFlag(FLAGS_net)));
  RETURN_IF_ERROR(CutToPredict({}, "", net).status());
  RETURN_IF_ERROR(FoldBatchNorms(net).status());
  ASSIGN_OR_RETURN(const DeviceChoice choice,
                   OpenDevice({.kind = "cpu", .threads = absl::GetFlag(FLAGS_threads)}));
  ASSIGN_OR_RETURN(const auto bench, PredictBench::Create(net, choice));
  RETURN_IF_ERROR(bench->Round());
  bench->Forget();  // a warm-up
  int measured = 0;
  for (; AnotherRound(measured, absl::GetFlag(FLAGS_rounds)); ++measured) {
    RETURN_IF_ERROR(bench->Round());
  }
  if (measured == 0) return absl::OkStatus();
  nlohmann::ordered_json report = {{"bench", "predict"},
                                   {"net", absl::GetFlag(FLAGS_net)},
                                   {"batch", absl::GetFlag(FLAGS_batch)},
                                   {"threads", choice.threads},
                                   {"calls", absl::GetFlag(FLAGS_calls)},
                                   {"rounds", measured}};
  report.update(bench->Report());
  PrintRow(report);
  return absl::OkStatus();
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Bench);
}
