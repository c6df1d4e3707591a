// bench_net: how long a training step takes, against the matrix-multiplication peak of the same
// device in the same minute.

#include <string>

#include "tools/bench/bench.h"
#include "tools/bench/step_bench.h"
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
                              .batch = absl::GetFlag(FLAGS_batch),
                              .replay = absl::GetFlag(FLAGS_replay),
                              .allreduce = allreduce,
                              .shard_optimizer = absl::GetFlag(FLAGS_shard_optimizer)};
  ASSIGN_OR_RETURN(options.compute,
                   TypeNamed("precision", absl::GetFlag(FLAGS_precision),
                             {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
  ASSIGN_OR_RETURN(options.planner, PlannerNamed("planner", absl::GetFlag(FLAGS_planner)));
  ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(absl::GetFlag(FLAGS_net)));
  ASSIGN_OR_RETURN(Ranks ranks, JoinRanks({allreduce}));
  if (options.shard_optimizer) {
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
