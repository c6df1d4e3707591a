#include "tools/command_line/command_line.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "distributed/collectives/choice/selector.h"
#include "engine/data/files/text_file.h"
#include "engine/runtime/device/cuda/cuda_device.h"
#include "engine/runtime/machine.h"
#include "engine/runtime/math.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"
#include "engine/runtime/primitives/cuda/tuner.h"
#include "engine/training/feed/data_feed.h"
#include "memory/pager/disk/page_folder.h"

namespace gyre {
namespace {

// In a process; far beyond any machine's cores.  OpenMP crashes where the system runs out of them.
constexpr int kMostThreads = 1024;
// Each has several threads and a copy of the net.
constexpr int kMostRanks = 256;
// Of a waiting OpenMP thread, some 50 ns each, before it sleeps.  On two cores of an idle machine a
// step of LeNet takes as long as with libgomp's 300,000; beside two other busy threads a tenth.
constexpr char kSpins[] = "6000";
constexpr int kMostStallS = 1'000'000;
constexpr int64_t kMostSteps = std::numeric_limits<int>::max();  // of staleness, which is an int

// "a, b or c".
std::string OneOf(std::vector<std::string> names) {
  const std::string last = std::move(names.back());
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), names.empty() ? "" : " or ", last);
}

// A rank's share of the host's cores, or of those that mpirun has bound it to: a core of its own,
// or a socket, which it shares with as many ranks as the socket has of the cores that mpirun has.
int DefaultThreads(int ranks_in_process) {
  const bool bound = std::getenv("OMPI_MCA_orte_bound_at_launch") != nullptr;
  const int ranks = std::max(1, AnnouncedLocalRank().size);
  int64_t share = Cores() / ranks;
  cpu_set_t own, launcher;
  if (bound && sched_getaffinity(0, sizeof(own), &own) == 0 &&
      sched_getaffinity(getppid(), sizeof(launcher), &launcher) == 0) {
    const int64_t cores = CPU_COUNT(&own), all = std::max(CPU_COUNT(&launcher), CPU_COUNT(&own));
    // Fewer by a control group's quota: that is all ranks' together.
    if (Cores() == cores) share = cores / CeilDiv(ranks * cores, all);
  }
  return static_cast<int>(std::max<int64_t>(1, share / ranks_in_process));
}

absl::StatusOr<int> Threads(const DeviceFlags& flags) {
  const int most = kMostThreads / flags.in_process.size;
  if (flags.threads < 0 || flags.threads > most) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--threads=%d: expected 1 to %d%s, or 0 for cores / ranks", flags.threads,
                        most, flags.in_process.size > 1 ? " for each of these ranks" : ""));
  }
  const int limit = omp_get_thread_limit();  // of each rank
  if (flags.threads > limit) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--threads=%d: OMP_THREAD_LIMIT allows %d in this environment; unset it, or ask for fewer",
        flags.threads, limit));
  }
  if (flags.threads > 0) return flags.threads;
  return std::min({DefaultThreads(flags.in_process.size), most, limit});
}

// This rank among those that share the host's GPUs: threads of this process, or the launcher's.
RankAndSize LocalRank(const RankAndSize& in_process) {
  const RankAndSize local = AnnouncedLocalRank();
  const bool counts = in_process.size == 1 && local.rank >= 0 && local.rank < local.size;
  return counts ? local : in_process;
}

// memory: 0 for what is free.
absl::Status OpenGpu(const DeviceFlags& flags, size_t memory, DeviceChoice& choice) {
  const RankAndSize local = LocalRank(flags.in_process);
  ASSIGN_OR_RETURN(choice.device, NewCudaDevice({.local_rank = local.rank,
                                                 .local_ranks = local.size,
                                                 .capacity_bytes = memory}));
  if (flags.autotune) {
    ProcessGroup* const communication = flags.communication;
    const int rank = communication == nullptr ? 0 : communication->rank();
    CudaTuner::Share share;
    if (communication != nullptr && communication->size() > 1) {
      share = [communication, rank](const std::string& what, double* value) {
        if (rank != 0) *value = 0;
        return communication->Sum(absl::StrCat("the choice for ", what),
                                  {value, Shape({1}), DType::kF64});
      };
    }
    auto tuner = std::make_unique<CudaTuner>(*choice.device, rank, std::move(share));
    choice.tune = [to = tuner.get()](const std::function<absl::Status()>& prepare) {
      return to->Tune(prepare);
    };
    choice.tuner = std::move(tuner);
  }
  ASSIGN_OR_RETURN(
      choice.primitives,
      NewCudaPrimitives(*choice.device, {.tf32 = flags.tf32, .selector = choice.tuner.get()}));
  return absl::OkStatus();
}

// An error of opening a file says who named it; one within the file names its line instead.
absl::Status AboutFile(const absl::Status& status, const std::string& path,
                       const std::string& named_by) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return status;
  return Annotate(status, named_by);
}

absl::Status CheckSync(const DistributedConfig& config, const SourceMap& source) {
  const auto error = [&](const char* field, const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(source.Where(config, field), ": ", what...));
  };
  const std::string sync = absl::AsciiStrToLower(DistributedConfig::Sync_Name(config.sync()));
  const bool bounded = config.sync() == DistributedConfig::SSP;
  if (config.staleness() < 0 || config.staleness() > kMostSteps) {
    return error("staleness", "expected ",
                 config.staleness() < 0 ? "0 steps or more" : "at most 2^31 - 1 steps", ", got ",
                 config.staleness());
  }
  if (config.staleness() > 0 && !bounded) {
    return error("staleness", "bounds sync ssp alone, and sync is ", sync, "; leave one out");
  }
  if (config.servers() < 0)
    return error("servers", "expected 0 ranks or more, got ", config.servers());
  for (const char* const field : {"servers", "server_memory"}) {
    const bool given =
        absl::string_view(field) == "servers" ? config.servers() > 0 : config.has_server_memory();
    if (!given || config.sync() != DistributedConfig::ALLREDUCE) continue;
    return error(field,
                 "is of a parameter server, and sync is allreduce; make sync bsp, ssp or "
                 "async, or leave ",
                 field, " out");
  }
  if (config.sync() == DistributedConfig::ALLREDUCE) return absl::OkStatus();
  constexpr std::string_view kBesideServers[] = {"direct", "shared", "auto"};
  if (config.has_allreduce() && std::ranges::count(kBesideServers, config.allreduce()) == 0) {
    return error("allreduce", "sums no gradients, because sync is ", sync,
                 "; leave it out, or make it direct, shared or auto, by which a parameter "
                 "server's ranks sum metrics and statistics");
  }
  if (config.shard_optimizer()) {
    return error("shard_optimizer",
                 "is of sync allreduce; owners of a parameter server have the "
                 "optimizer's state of their part in any case; leave one out");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<size_t> ParseBytes(absl::string_view flag, absl::string_view text) {
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
        absl::StrFormat("%s=%s: expected bytes, such as 1048576, 64M or 1.5G", flag, text));
  }
  return static_cast<size_t>(value * factor);
}

std::vector<std::string> SplitSet(absl::string_view flag) {
  if (flag.empty()) return {};
  return absl::StrSplit(flag, kBetweenSets);
}

absl::StatusOr<std::vector<double>> PositiveNumbers(absl::string_view flag,
                                                    const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    double& number = numbers.emplace_back();
    if (absl::SimpleAtod(text, &number) && number > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", text, ": expected a number above 0"));
  }
  return numbers;
}

absl::Status CheckLeast(double least, std::initializer_list<FlagNumber> numbers) {
  for (const FlagNumber& number : numbers) {
    if (number.value >= least) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", number.flag, "=", number.value, ": expected ", least, " or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckPositive(std::initializer_list<FlagNumber> numbers) {
  for (const FlagNumber& number : numbers) {
    if (number.value > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", number.flag, "=", number.value, ": expected a number above 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<size_t>> ParseSizes(absl::string_view flag, absl::string_view text,
                                               DType type) {
  const std::string name(DTypeName(type));
  std::vector<size_t> sizes;
  for (const absl::string_view size : absl::StrSplit(text, ',')) {
    ASSIGN_OR_RETURN(sizes.emplace_back(), ParseBytes(absl::StrCat("--", flag), size));
    if (sizes.back() % SizeOf(type) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", size, ": expected a multiple of ", SizeOf(type), ", the bytes of ", name));
  }
  return sizes;
}

absl::StatusOr<DType> TypeNamed(absl::string_view flag, absl::string_view name,
                                std::initializer_list<DType> types) {
  std::vector<std::string> names;
  for (const DType type : types) {
    names.emplace_back(DTypeName(type));
    if (names.back() == name) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", name, ": expected ", OneOf(names)));
}

absl::StatusOr<PlannerKind> PlannerNamed(absl::string_view flag, const std::string& name) {
  if (name == "auto") return PlannerKind::kAuto;
  if (name == "geeps") return PlannerKind::kGeeps;
  if (name == "none") return PlannerKind::kNone;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", name, ": expected auto, geeps or none"));
}

absl::Status CheckEnding(absl::string_view flag, const std::string& path,
                         std::initializer_list<absl::string_view> endings) {
  const bool good = std::ranges::any_of(
      endings, [&](absl::string_view ending) { return absl::EndsWith(path, ending); });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", path,
                                                 ": expected a name that ends in ",
                                                 OneOf({endings.begin(), endings.end()})));
}

absl::StatusOr<ConfigFiles> ReadFiles(const std::string& trainer_path,
                                      const std::vector<std::string>& overrides,
                                      const std::string& device, const Spellings& spellings,
                                      int ranks) {
  if (trainer_path.empty()) {
    return absl::InvalidArgumentError("--trainer is missing; see --help");
  }
  ASSIGN_OR_RETURN(const SplitOverrides split, Split(overrides));
  ConfigFiles files;
  auto trainer = ParseTrainer(trainer_path, split.trainer, spellings);
  if (!trainer.ok()) return AboutFile(trainer.status(), trainer_path, "--trainer");
  files.trainer = *std::move(trainer);
  TrainerConfig& config = *files.trainer.message;
  const SourceMap& source = *files.trainer.source;
  const std::string net_path = RelativeTo(trainer_path, config.net());
  auto net = ParseNet(net_path, split.net, spellings);
  if (!net.ok()) return AboutFile(net.status(), net_path, source.Where(config, "net") + ": net");
  files.net = *std::move(net);
  // Who leaves the choice open has the one that can do what else is wanted.
  if (config.distributed().wire() != DistributedConfig::F32 &&
      config.distributed().sync() == DistributedConfig::ALLREDUCE &&
      (!config.distributed().has_allreduce() || config.distributed().allreduce() == "auto")) {
    config.mutable_distributed()->set_allreduce("direct");
  }
  // Before the ranks meet, because one without an algorithm cannot join the others.
  const auto kind = ParseDeviceKind(device);  // OpenDevice refuses another
  RETURN_IF_ERROR(Annotate(CheckAllreduce(config.distributed().allreduce(),
                                          kind.ok() ? *kind : std::optional<DeviceKind>(),
                                          /*threads=*/ranks > 1),
                           source.Where(config.distributed(), "allreduce")));
  RETURN_IF_ERROR(CheckSync(config.distributed(), source));
  // An owner adds gradients in the order of ranks, so what else a step sums is added likewise.
  if (config.distributed().sync() == DistributedConfig::BSP &&
      config.distributed().allreduce() != "shared") {
    config.mutable_distributed()->set_allreduce("direct");
  }
  files.allreduce.algorithm = config.distributed().allreduce();
  const DType sent_as = WireOf(config);
  absl::Status wire;
  if (config.distributed().sync() == DistributedConfig::ALLREDUCE) {  // else of what is no sum
    files.allreduce.wire = sent_as;
    wire = CheckWire(config.distributed().allreduce(), sent_as);
  }
  const DType precision = PrecisionOf(config, *files.net.message);
  if (sent_as != DType::kF32 && precision != DType::kF32) {
    wire = absl::InvalidArgumentError(absl::StrCat("carries gradients of F32, and precision is ",
                                                   std::string(DTypeName(precision)),
                                                   "; leave one out"));
  }
  RETURN_IF_ERROR(Annotate(wire, source.Where(config.distributed(), "wire")));
  if (config.distributed().shard_optimizer()) {
    absl::Status halves = CheckHalves(config.distributed().allreduce());
    if (files.allreduce.wire != DType::kF32) {
      halves = absl::InvalidArgumentError(
          "sums gradients as they are, and distributed.wire rounds them; leave one out");
    }
    RETURN_IF_ERROR(Annotate(halves, source.Where(config.distributed(), "shard_optimizer")));
  }
  if (config.distributed().has_calibration()) {
    const std::string path = RelativeTo(trainer_path, config.distributed().calibration());
    const auto text = ReadText(path);
    absl::Status status = text.status();
    if (status.ok()) {
      files.allreduce.calibration = *text;
      status = Annotate(Selector::Calibrated(*text, {}).status(), path);
    }
    RETURN_IF_ERROR(Annotate(status, source.Where(config.distributed(), "calibration")));
  }
  return files;
}

absl::Status CheckPages(absl::string_view flag, const std::string& device) {
  if (device != DeviceKindName(DeviceKind::kCpu)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, ": with --device=cpu nothing is paged; leave it out, or use --device=sim"));
}

absl::StatusOr<PageStorage> ParsePageStorage(const std::string& device,
                                             absl::string_view host_memory,
                                             const std::string& page_folder,
                                             const std::string& default_folder) {
  PageStorage places = {.folder = page_folder};
  if (host_memory.empty()) {
    if (page_folder.empty()) return places;
    return absl::InvalidArgumentError(
        "--page_folder: without --host_memory nothing lies on disk; give that too, or leave it "
        "out");
  }
  RETURN_IF_ERROR(CheckPages("--host_memory", device));
  ASSIGN_OR_RETURN(places.host_bytes, ParseBytes("--host_memory", host_memory));
  if (!page_folder.empty()) return places;
  ASSIGN_OR_RETURN(places.folder, DefaultPageFolder(default_folder));
  return places;
}

absl::StatusOr<DeviceChoice> OpenDevice(const DeviceFlags& flags) {
  DeviceChoice choice;
  ASSIGN_OR_RETURN(choice.threads, Threads(flags));
  const auto kind = ParseDeviceKind(flags.kind);
  if (!kind.ok()) return Annotate(kind.status(), "--device");
  size_t memory = 0;  // not given
  if (!flags.memory.empty()) {
    if (*kind == DeviceKind::kCpu) {
      return absl::InvalidArgumentError(
          "--device_memory: the memory of --device=cpu has no bound; leave it out, or use "
          "--device=sim");
    }
    ASSIGN_OR_RETURN(memory, ParseBytes("--device_memory", flags.memory));
  }
  if (*kind == DeviceKind::kCuda) {
    RETURN_IF_ERROR(OpenGpu(flags, memory, choice));
    return choice;
  }
  if (*kind == DeviceKind::kCpu) {
    choice.device = NewCpuDevice({.threads = choice.threads});
  } else {
    SimOptions sim{.threads = choice.threads};
    if (memory > 0) sim.capacity_bytes = memory;
    choice.device = NewSimDevice(sim);
  }
  choice.primitives = std::make_unique<Primitives>(*kind, choice.threads);
  return choice;
}

absl::StatusOr<Ranks> JoinRanks(AllreduceChoice allreduce, int ranks, int stall_timeout_s) {
  allreduce.command =
      absl::StrCat("program ", program_invocation_short_name, "\n", allreduce.command);
  if (ranks < 1 || ranks > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--ranks=%d: expected 1 to %d", ranks, kMostRanks));
  }
  if (stall_timeout_s < 1 || stall_timeout_s > kMostStallS) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--stall_timeout_s=%d: expected 1 to %d", stall_timeout_s, kMostStallS));
  }
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

void LetWaitingThreadsSleep(char** argv) {
  for (const char* chosen : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
                             // libgomp has bound this thread to a core, where the program started
                             // anew would stay with all of its threads.
                             "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    const char* const value = std::getenv(chosen);
    if (value != nullptr && *value != '\0') return;
  }
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  setenv("GOMP_SPINCOUNT", kSpins, 1);
  execv(self.c_str(), argv);  // where it returns, it could not, and threads wait as they always do
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
  if (communication != nullptr && StartedAsRank()) communication->Abort(status, exit_code);
  _exit(exit_code);
}

}  // namespace gyre
