// bench_net: how long a training step takes, against the matrix-multiplication peak of the same
// device in the same minute.

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "tools/bench/step_bench.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"

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

// True while there is another round: for 0 rounds, once a line has come; says when it may come.
bool AnotherRound(int round, int rounds) {
  if (rounds > 0) return round < rounds;
  std::puts(round == 0 ? "ready" : "done");
  std::fflush(stdout);
  std::string line;
  return static_cast<bool>(std::getline(std::cin, line));
}

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

// device: made here, and outlives the communication, which may use it.
absl::Status Bench(ProcessGroup& communication, DeviceChoice& device) {
  const int rounds = absl::GetFlag(FLAGS_rounds), steps = absl::GetFlag(FLAGS_steps);
  if (absl::GetFlag(FLAGS_net).empty()) {
    return absl::InvalidArgumentError("--net is missing; see --help");
  }
  // Of several ranks, one alone has the standard input.
  RETURN_IF_ERROR(CheckLeast(communication.size() > 1 ? 1 : 0, {{"rounds", 1.0 * rounds}}));
  RETURN_IF_ERROR(CheckLeast(1, {{"steps", 1.0 * steps}}));
  // Each rank needs a sample.
  RETURN_IF_ERROR(CheckLeast(communication.size(), {{"batch", 1.0 * absl::GetFlag(FLAGS_batch)}}));
  if (absl::GetFlag(FLAGS_shard_optimizer)) {
    RETURN_IF_ERROR(Annotate(CheckHalves(absl::GetFlag(FLAGS_allreduce)), "--shard_optimizer"));
  }
  StepBenchOptions options;
  ASSIGN_OR_RETURN(options.compute,
                   TypeNamed("precision", absl::GetFlag(FLAGS_precision),
                             {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
  ASSIGN_OR_RETURN(options.planner, PlannerNamed("planner", absl::GetFlag(FLAGS_planner)));
  if (absl::GetFlag(FLAGS_digest) && communication.size() > 1) {
    return absl::InvalidArgumentError("--digest: of one rank alone");
  }
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(absl::GetFlag(FLAGS_net)));
  options.batch = absl::GetFlag(FLAGS_batch);
  options.device.kind = absl::GetFlag(FLAGS_device);
  options.device.tf32 = absl::GetFlag(FLAGS_tf32);
  options.device.memory = absl::GetFlag(FLAGS_device_memory);
  options.device.threads = absl::GetFlag(FLAGS_threads);
  options.device.autotune = absl::GetFlag(FLAGS_autotune);
  options.replay = absl::GetFlag(FLAGS_replay);
  options.allreduce = absl::GetFlag(FLAGS_allreduce);
  options.shard_optimizer = absl::GetFlag(FLAGS_shard_optimizer);
  if (communication.size() > 1) options.device.communication = &communication;
  ASSIGN_OR_RETURN(device, OpenDevice(options.device));
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
  std::printf("%s\n", report.dump().c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage, kGroups);
  DeviceChoice device;  // before the communication, which may use it
  const auto ranks = JoinRanks({absl::GetFlag(FLAGS_allreduce)});
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  ProcessGroup& communication = *ranks->front();
  const absl::Status status = Bench(communication, device);
  if (!status.ok()) Fail(&communication, status);
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
