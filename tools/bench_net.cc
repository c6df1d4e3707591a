// bench_net: how long a training step takes, against the matrix-multiplication peak of the same
// device in the same minute.

#include <cstdio>
#include <deque>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/step_bench.h"

ABSL_FLAG(std::string, net, "", "The net's text file; it is fed random images and labels.");
ABSL_FLAG(int, batch, 64, "Images a step, of all ranks together.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda, or sim.");
ABSL_FLAG(std::string, device_memory, "", "Bytes of device memory (cuda, sim), such as 64M.");
ABSL_FLAG(
    std::string, planner, "auto",
    "Of what moves when where --device_memory does not hold all: auto, geeps, naive, or none: "
    "that is an error.");
ABSL_FLAG(
    bool, autotune, true,
    "On a GPU, measure algorithms at the start; false: those that its libraries recommend, in "
    "every run the same.");
ABSL_FLAG(bool, digest, false, "At the end, of one rank: the weights' digest, as train has it.");
ABSL_FLAG(std::string, threads, "0",
          "Thread counts to measure in turn, with commas; 0: as many as there are cores.");
ABSL_FLAG(std::string, precision, "F32", "F32, F64, F16 or BF16.");
ABSL_FLAG(bool, tf32, false, "On a GPU, round the factors of F32 products to 10 bits of fraction.");
ABSL_FLAG(std::string, allreduce, "ring", "How several ranks sum gradients.");
ABSL_FLAG(bool, shard_optimizer, false, "Each of several ranks updates a part of the weights.");
ABSL_FLAG(bool, replay, true, "Capture steps and replay them; false: enqueue each anew.");
ABSL_FLAG(int, rounds, 15,
          "Rounds; each measures every thread count once, in turn.  0: a round for each line of "
          "standard input, which tools/peer/compare sends.");
ABSL_FLAG(int, steps, 10, "Steps a round.");

namespace gyre {
namespace {

// True while there is another round: for 0 rounds, once a line has come; says when it may come.
bool AnotherRound(int round, int rounds) {
  if (rounds > 0) return round < rounds;
  std::puts(round == 0 ? "ready" : "done");
  std::fflush(stdout);
  std::string line;
  return static_cast<bool>(std::getline(std::cin, line));
}

constexpr char kUsage[] =
    "measures training steps: SGD with momentum on random images.\n\n"
    "  bench_net --net=models/lenet/net.textproto --threads=1,2\n"
    "  mpirun -np 2 --bind-to core bench_net --net=models/lenet/net.textproto --threads=1 "
    "--allreduce=shared\n"
    "  bench_net --net=models/alexnet/net.textproto --batch=128 --device=cuda --tf32\n"
    "  bench_net --net=models/alexnet/net.textproto --batch=8 --device=sim --device_memory=64M\n\n"
    "Prints a JSON line for each thread count: medians over interleaved rounds.  A step is "
    "upload,\n"
    "forward, backward with the ranks' sums, and update; gemm_share is the net's FLOPs a second\n"
    "over those of a large square product of the same precision (2048, on a GPU 8192) in the same\n"
    "round, where memory has no bound.  Of several ranks rank 0 prints, and what is no rate of "
    "images is its own; what sums\n"
    "cost a step bench_scaling tells.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

absl::Status Bench(ProcessGroup& communication, std::deque<DeviceChoice>& devices) {
  const int rounds = absl::GetFlag(FLAGS_rounds), steps = absl::GetFlag(FLAGS_steps);
  const std::vector<std::string> threads = absl::StrSplit(absl::GetFlag(FLAGS_threads), ',');
  if (communication.size() > 1 && (rounds == 0 || threads.size() > 1)) {
    return absl::InvalidArgumentError(
        "--rounds and --threads: of several ranks expected 1 or more, and one number");
  }
  if (absl::GetFlag(FLAGS_net).empty()) {
    return absl::InvalidArgumentError("--net is missing; see --help");
  }
  if (rounds < 0 || steps < 1 || absl::GetFlag(FLAGS_batch) < 1) {
    return absl::InvalidArgumentError(
        "--steps and --batch: expected 1 or more; --rounds: 0 or more");
  }
  if (absl::GetFlag(FLAGS_batch) < communication.size()) {
    return absl::InvalidArgumentError("--batch: each rank needs a sample");
  }
  if (absl::GetFlag(FLAGS_shard_optimizer)) {
    RETURN_IF_ERROR(Annotate(CheckHalves(absl::GetFlag(FLAGS_allreduce)), "--shard_optimizer"));
  }
  LayerConfig::Precision precision;
  if (!LayerConfig::Precision_Parse(absl::GetFlag(FLAGS_precision), &precision)) {
    return absl::InvalidArgumentError(absl::StrCat("--precision=", absl::GetFlag(FLAGS_precision),
                                                   ": expected F32, F64, F16 or BF16"));
  }
  ASSIGN_OR_RETURN(const PlannerKind planner, PlannerNamed(absl::GetFlag(FLAGS_planner)));
  if (absl::GetFlag(FLAGS_digest) && communication.size() > 1) {
    return absl::InvalidArgumentError("--digest: of one rank alone");
  }
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(absl::GetFlag(FLAGS_net)));
  std::vector<std::unique_ptr<StepBench>> benches;
  for (const std::string& text : threads) {
    StepBenchOptions options;
    options.compute = DTypeOf(precision);
    options.batch = absl::GetFlag(FLAGS_batch);
    options.device.kind = absl::GetFlag(FLAGS_device);
    options.device.tf32 = absl::GetFlag(FLAGS_tf32);
    options.device.memory = absl::GetFlag(FLAGS_device_memory);
    options.device.autotune = absl::GetFlag(FLAGS_autotune);
    options.replay = absl::GetFlag(FLAGS_replay);
    options.allreduce = absl::GetFlag(FLAGS_allreduce);
    options.shard_optimizer = absl::GetFlag(FLAGS_shard_optimizer);
    options.planner = planner;
    if (!absl::SimpleAtoi(text, &options.device.threads)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--threads=", absl::GetFlag(FLAGS_threads), ": expected counts, as in 1,2"));
    }
    if (communication.size() > 1) options.device.communication = &communication;
    ASSIGN_OR_RETURN(devices.emplace_back(), OpenDevice(options.device));
    ASSIGN_OR_RETURN(benches.emplace_back(),
                     StepBench::Create(net, options, devices.back(), communication));
  }
  const auto measure = [&] {
    for (const auto& bench : benches) RETURN_IF_ERROR(bench->Round(steps));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(measure());
  for (const auto& bench : benches) bench->Forget();  // a warm-up
  int measured = 0;
  for (; AnotherRound(measured, rounds); ++measured) RETURN_IF_ERROR(measure());
  if (measured == 0 || communication.rank() != 0) return absl::OkStatus();
  for (const auto& bench : benches) {
    nlohmann::ordered_json report = bench->Report();
    if (absl::GetFlag(FLAGS_digest)) {
      ASSIGN_OR_RETURN(report["weights_sha256"], bench->Sha256OfWeights());
    }
    std::printf("%s\n", report.dump().c_str());
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage);
  std::deque<DeviceChoice> devices;  // before the communication, which may use one
  const auto ranks = JoinRanks({absl::GetFlag(FLAGS_allreduce)});
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  ProcessGroup& communication = *ranks->front();
  const absl::Status status = Bench(communication, devices);
  if (!status.ok()) Fail(&communication, status);
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
