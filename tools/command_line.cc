#include "tools/command_line.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace gyre {
namespace {

// Longer than ranks differ in reaching the same error, short against the 10 s a failure may take.
constexpr std::chrono::milliseconds kOtherRanksWait(500);
constexpr int64_t kSilentRankTimeoutMs = 300'000;

// Joins every --set of a command line into the first, because a flag keeps its last value only.
std::vector<std::string> JoinSets(int argc, char** argv) {
  std::vector<std::string> arguments;
  std::string sets;
  for (int i = 0; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::StartsWith(argument, "--")) argument.remove_prefix(1);
    if (absl::ConsumePrefix(&argument, "-set=")) {
      absl::StrAppend(&sets, sets.empty() ? "" : ",", argument);
    } else if (argument == "-set" && i + 1 < argc) {
      absl::StrAppend(&sets, sets.empty() ? "" : ",", argv[++i]);
    } else {
      arguments.emplace_back(argv[i]);
    }
  }
  if (!sets.empty()) arguments.push_back(absl::StrCat("--set=", sets));
  return arguments;
}

int LocalRanks() {
  int ranks = 1;
  const char* text = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (text != nullptr && !absl::SimpleAtoi(text, &ranks)) ranks = 1;
  return std::max(ranks, 1);
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

}  // namespace

void ParseFlags(int argc, char** argv, absl::string_view usage) {
  absl::SetProgramUsageMessage(usage);
  std::vector<std::string> arguments = JoinSets(argc, argv);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  const std::vector<char*> rest =
      absl::ParseCommandLine(static_cast<int>(pointers.size()), pointers.data());
  if (rest.size() > 1) {
    std::fprintf(stderr, "error: unexpected argument \"%s\"; see --help\n", rest[1]);
    std::exit(kExitUsage);
  }
}

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
  ASSIGN_OR_RETURN(files.trainer, ParseTrainer(trainer_path, split.trainer));
  const std::string net = RelativeTo(trainer_path, files.trainer.message->net());
  ASSIGN_OR_RETURN(files.net, ParseNet(net, split.net));
  return files;
}

absl::StatusOr<DeviceChoice> OpenDevice(const DeviceFlags& flags) {
  DeviceChoice choice;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  choice.threads = flags.threads > 0 ? flags.threads : std::max(1, cores / LocalRanks());
  if (flags.threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--threads=%d: expected 1 or more, or 0 for cores / ranks", flags.threads));
  }
  ASSIGN_OR_RETURN(const DeviceKind kind, ParseDeviceKind(flags.kind));
  if (kind == DeviceKind::kCuda) {
    return absl::UnimplementedError("--device=cuda: this build has no GPU support");
  }
  if (kind == DeviceKind::kCpu) {
    if (!flags.memory.empty()) {
      return absl::InvalidArgumentError("--device_memory bounds --device=sim; cpu has no bound");
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
  if (announced.rank != 0) std::this_thread::sleep_for(kOtherRanksWait);
  if (announced.size > 1) {
    std::fprintf(stderr, "error: rank %d: %s\n", announced.rank,
                 std::string(status.message()).c_str());
  } else {
    std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  }
  std::fflush(nullptr);
  if (communication != nullptr && StartedByMpirun()) communication->Abort(status);
  _exit(absl::IsCancelled(status) ? kExitStopped : kExitFailed);
}

}  // namespace gyre
