#include "tools/command_line.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace gyre {
namespace {

// Longer than ranks differ in reaching the same error, short against the 10 s a failure may take.
constexpr std::chrono::milliseconds kOtherRanksWait(2000);
// Far beyond any machine's cores; OpenMP crashes where the system runs out of threads.
constexpr int kMostThreads = 1024;
constexpr int64_t kSilentRankTimeoutMs = 300'000;

// This rank's share of the host's cores.  Where mpirun has bound the rank to cores, those are it.
int DefaultThreads() {
  // hardware_concurrency counts cores that this process may not use.
  cpu_set_t allowed;
  const int cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                        ? CPU_COUNT(&allowed)
                        : static_cast<int>(std::thread::hardware_concurrency());
  const bool bound = std::getenv("OMPI_MCA_orte_bound_at_launch") != nullptr;
  const char* local_ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  int sharers = 1;
  if (bound || local_ranks == nullptr || !absl::SimpleAtoi(local_ranks, &sharers)) sharers = 1;
  return std::max(1, cores / std::max(1, sharers));
}

absl::StatusOr<size_t> ParseBytes(absl::string_view text) {
  absl::string_view digits = text;
  double factor = 1;
  const struct {
    char letter;
    double factor;
  } kSuffixes[] = {{'K', 1024.0}, {'M', 1048576.0}, {'G', 1073741824.0}};
  for (const auto& suffix : kSuffixes) {
    if (!digits.empty() && absl::ascii_toupper(digits.back()) == suffix.letter) {
      digits.remove_suffix(1);
      factor = suffix.factor;
      break;
    }
  }
  double value = 0;
  if (!absl::SimpleAtod(digits, &value) || !(value > 0) || value * factor > 1e18) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--device_memory=%s: expected bytes, such as 1048576, 64M or 1.5G", text));
  }
  return static_cast<size_t>(value * factor);
}

// An error of opening a file says who named it; one within the file names its line instead.
absl::Status AboutFile(const absl::Status& status, const std::string& path,
                       const std::string& named_by) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return status;
  return Annotate(status, named_by);
}

}  // namespace

std::vector<std::string> SplitSet(absl::string_view flag) {
  std::vector<std::string> overrides;
  if (flag.empty()) return overrides;
  for (absl::string_view part : absl::StrSplit(flag, ',')) {
    if (overrides.empty() || absl::StrContains(part, '=')) {
      overrides.emplace_back(part);
    } else {
      absl::StrAppend(&overrides.back(), ",", part);
    }
  }
  return overrides;
}

absl::StatusOr<Files> ReadFiles(const std::string& trainer_path,
                                const std::vector<std::string>& overrides) {
  if (trainer_path.empty()) {
    return absl::InvalidArgumentError("--trainer is missing; see --help");
  }
  ASSIGN_OR_RETURN(const SplitOverrides split, Split(overrides));
  Files files;
  auto trainer = ParseTrainer(trainer_path, split.trainer);
  if (!trainer.ok()) return AboutFile(trainer.status(), trainer_path, "--trainer");
  files.trainer = *std::move(trainer);
  const TrainerConfig& config = *files.trainer.message;
  const SourceMap& source = *files.trainer.source;
  const std::string net_path = RelativeTo(trainer_path, config.net());
  auto net = ParseNet(net_path, split.net);
  if (!net.ok()) return AboutFile(net.status(), net_path, source.Where(config, "net") + ": net");
  files.net = *std::move(net);
  // Before the ranks meet, because one without an algorithm cannot join the others.
  RETURN_IF_ERROR(
      Annotate(NewAllreduce(config.distributed().allreduce(), *NewThreadCommunicators(1, 0).front())
                   .status(),
               source.Where(config.distributed(), "allreduce")));
  return files;
}

absl::StatusOr<DeviceChoice> OpenDevice(const DeviceFlags& flags) {
  DeviceChoice choice;
  choice.threads = flags.threads > 0 ? flags.threads : DefaultThreads();
  if (flags.threads < 0 || flags.threads > kMostThreads) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--threads=%d: expected 1 to %d, or 0 for cores / ranks", flags.threads, kMostThreads));
  }
  const auto kind = ParseDeviceKind(flags.kind);
  if (!kind.ok()) return Annotate(kind.status(), "--device");
  if (*kind == DeviceKind::kCuda) {
    return absl::UnimplementedError("--device=cuda: this build has no GPU support; use cpu or sim");
  }
  if (*kind == DeviceKind::kCpu) {
    if (!flags.memory.empty()) {
      return absl::InvalidArgumentError(
          "--device_memory: the memory of --device=cpu has no bound; leave it out, or use "
          "--device=sim");
    }
    choice.device = NewCpuDevice({.threads = choice.threads});
    return choice;
  }
  SimOptions sim{.threads = choice.threads};
  if (!flags.memory.empty()) {
    ASSIGN_OR_RETURN(sim.capacity_bytes, ParseBytes(flags.memory));
  }
  choice.device = NewSimDevice(sim);
  return choice;
}

absl::StatusOr<std::unique_ptr<CommunicationThread>> JoinRanks(const std::string& allreduce) {
  return CommunicationThread::Start(
      []() -> absl::StatusOr<std::unique_ptr<Communicator>> {
        if (StartedByMpirun()) return NewMpiCommunicator(kSilentRankTimeoutMs);
        return std::move(NewThreadCommunicators(1, kSilentRankTimeoutMs).front());
      },
      allreduce);
}

void Fail(CommunicationThread* communication, const absl::Status& status) {
  const RankAndSize announced = AnnouncedRank();
  std::signal(SIGTERM, SIG_DFL);  // mpirun's, after another rank's error
  if (announced.rank != 0) std::this_thread::sleep_for(kOtherRanksWait);
  if (announced.size > 1) {
    std::fprintf(stderr, "error: rank %d: %s\n", announced.rank,
                 std::string(status.message()).c_str());
  } else {
    std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  }
  std::fflush(nullptr);
  if (communication != nullptr && StartedByMpirun()) communication->Abort(status);
  _exit(kExitFailed);
}

}  // namespace gyre
