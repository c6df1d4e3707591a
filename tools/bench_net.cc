// bench_net: how long a training step takes, against the matrix-multiplication peak of the same
// device in the same minute.

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/step_bench.h"

ABSL_FLAG(std::string, net, "", "The net's text file; it is fed random images and labels.");
ABSL_FLAG(int, batch, 64, "Images a step.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda, or sim.");
ABSL_FLAG(std::string, threads, "0",
          "Thread counts to measure in turn, with commas; 0: as many as there are cores.");
ABSL_FLAG(std::string, precision, "F32", "F32, F64, F16 or BF16.");
ABSL_FLAG(bool, tf32, false, "On a GPU, round the factors of F32 products to 10 bits of fraction.");
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
    "measures training steps of one rank (bench_scaling: of several): SGD with momentum on random\n"
    "images.\n\n"
    "  bench_net --net=models/lenet/net.textproto --threads=1,2\n"
    "  bench_net --net=models/alexnet/net.textproto --batch=128 --device=cuda --tf32\n\n"
    "Prints a JSON line for each thread count: medians over interleaved rounds.  A step is "
    "upload,\n"
    "forward, backward and update; gemm_share is the net's FLOPs a second over those of a large\n"
    "square product of the same precision (2048, on a GPU 8192) in the same round.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

absl::Status Bench(ProcessGroup& communication) {
  if (communication.size() > 1) {
    return absl::InvalidArgumentError(
        "bench_net measures one rank; bench_scaling measures several");
  }
  const int rounds = absl::GetFlag(FLAGS_rounds), steps = absl::GetFlag(FLAGS_steps);
  if (absl::GetFlag(FLAGS_net).empty()) {
    return absl::InvalidArgumentError("--net is missing; see --help");
  }
  if (rounds < 0 || steps < 1 || absl::GetFlag(FLAGS_batch) < 1) {
    return absl::InvalidArgumentError(
        "--steps and --batch: expected 1 or more; --rounds: 0 or more");
  }
  LayerConfig::Precision precision;
  if (!LayerConfig::Precision_Parse(absl::GetFlag(FLAGS_precision), &precision)) {
    return absl::InvalidArgumentError(absl::StrCat("--precision=", absl::GetFlag(FLAGS_precision),
                                                   ": expected F32, F64, F16 or BF16"));
  }
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(absl::GetFlag(FLAGS_net)));
  std::vector<std::unique_ptr<StepBench>> benches;
  for (absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_threads), ',')) {
    StepBenchOptions options;
    options.compute = DTypeOf(precision);
    options.batch = absl::GetFlag(FLAGS_batch);
    options.device.kind = absl::GetFlag(FLAGS_device);
    options.device.tf32 = absl::GetFlag(FLAGS_tf32);
    options.device.autotune = true;
    options.replay = absl::GetFlag(FLAGS_replay);
    if (!absl::SimpleAtoi(text, &options.device.threads)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--threads=", absl::GetFlag(FLAGS_threads), ": expected counts, as in 1,2"));
    }
    ASSIGN_OR_RETURN(benches.emplace_back(), StepBench::Create(net, options, communication));
  }
  const auto measure = [&] {
    for (const auto& bench : benches) RETURN_IF_ERROR(bench->Round(steps));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(measure());
  for (const auto& bench : benches) bench->Forget();  // a warm-up
  int measured = 0;
  for (; AnotherRound(measured, rounds); ++measured) RETURN_IF_ERROR(measure());
  if (measured == 0) return absl::OkStatus();
  for (const auto& bench : benches) std::printf("%s\n", bench->Report().dump().c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage);
  const auto ranks = JoinRanks({"ring"});
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  ProcessGroup& communication = *ranks->front();
  const absl::Status status = Bench(communication);
  if (!status.ok()) Fail(&communication, status);
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
