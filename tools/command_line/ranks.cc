#include "tools/command_line/ranks.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "engine/runtime/check.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/process.h"

namespace gyre {
namespace {

// Each has several threads and a copy of the net.
constexpr int kMostRanks = 256;
constexpr int kMostStallS = 1'000'000;

std::function<void()>& Cleanup() {
  static auto* const cleanup = new std::function<void()>;
  return *cleanup;
}

}  // namespace

void BeforeFailing(std::function<void()> cleanup) { Cleanup() = std::move(cleanup); }

absl::StatusOr<Ranks> JoinRanks(AllreduceChoice allreduce, int ranks, int stall_timeout_s) {
  allreduce.command =
      absl::StrCat("program ", program_invocation_short_name, "\n", allreduce.command);
  RETURN_IF_ERROR(CheckValue(ranks >= 1 && ranks <= kMostRanks, "ranks", ranks,
                             absl::StrCat("1 to ", kMostRanks)));
  RETURN_IF_ERROR(CheckValue(stall_timeout_s >= 1 && stall_timeout_s <= kMostStallS,
                             "stall_timeout_s", stall_timeout_s,
                             absl::StrCat("1 to ", kMostStallS)));
  RETURN_IF_ERROR(Annotate(CheckAllreduce(allreduce.algorithm, std::nullopt, /*threads=*/ranks > 1),
                           "--allreduce"));
  const int64_t timeout_ms = int64_t{1000} * stall_timeout_s;
  if (const int announced = AnnouncedRank().size; ranks > 1 && announced > 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--ranks=%d: %s has started %d ranks already; leave one of the two out",
                        ranks, Launcher(), announced));
  }
  RETURN_IF_ERROR(CheckLauncher());
  Ranks joined;
  if (ranks == 1 && StartedAsRank()) {
    ASSIGN_OR_RETURN(joined.emplace_back(),
                     ProcessGroup::Start([=] { return NewMpiCommunicator(timeout_ms); }, allreduce,
                                         ProcessGroup::kMeetingTimeoutMs, timeout_ms));
    return joined;
  }
  for (auto& communicator : NewThreadCommunicators(ranks, timeout_ms)) {
    const auto make = [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
      return std::move(communicator);
    };
    ASSIGN_OR_RETURN(joined.emplace_back(), ProcessGroup::Start(make, allreduce));
  }
  return joined;
}

absl::Status RunRanks(Ranks ranks, const DeviceFlags& flags,
                      const std::function<absl::Status(ProcessGroup&, const DeviceChoice&)>& body) {
  const int count = static_cast<int>(ranks.size());
  const auto run = [&](int index) {
    absl::StatusOr<DeviceChoice> choice;  // before the communication, which may use the device
    const std::unique_ptr<ProcessGroup> communication = std::move(ranks[index]);
    DeviceFlags own = flags;
    own.in_process = {index, count};
    own.communication = communication.get();
    choice = OpenDevice(own);
    const absl::Status status = choice.ok() ? body(*communication, *choice) : choice.status();
    if (!status.ok() && !absl::IsCancelled(status)) Fail(communication.get(), status);
    if (const absl::Status end = communication->Stop(); !end.ok()) Fail(nullptr, end);
    return status;
  };
  std::vector<std::thread> others;
  for (int index = 1; index < count; ++index) others.emplace_back(run, index);
  const absl::Status status = run(0);
  for (std::thread& other : others) other.join();
  return status;
}

void Fail(ProcessGroup* communication, const absl::Status& status) {
  const bool of_flags = absl::IsInvalidArgument(status) && absl::StartsWith(status.message(), "--");
  const int exit_code = of_flags ? kExitUsage : kExitFailed;
  RankAndSize self = AnnouncedRank();
  if (communication != nullptr) self = {communication->rank(), communication->size()};
  std::signal(SIGTERM, SIG_DFL);  // mpirun's, after another rank's error
  // Wrong flags, texts and checkpoints are so on every rank; a step's data are a rank's own.
  const bool of_all = self.rank == 0 && !absl::StartsWith(status.message(), "step ") &&
                      (absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
                       absl::IsAlreadyExists(status));
  if (self.rank != 0) std::this_thread::sleep_for(kOtherRanksWait);
  static std::mutex* const last_words = new std::mutex;
  last_words->lock();
  if (self.size > 1 && !of_all) {
    std::fprintf(stderr, "error: rank %d: %s\n", self.rank, std::string(status.message()).c_str());
  } else {
    std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  }
  std::fflush(nullptr);
  if (Cleanup()) Cleanup()();
  if (communication != nullptr && StartedAsRank()) communication->Abort(status, exit_code);
  _exit(exit_code);
}

}  // namespace gyre
