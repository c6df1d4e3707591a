// command_line.h: the tools' flags, ranks and devices, and how a command ends.
// Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong flags, 130 stopped.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "distributed/transport/launcher.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/dtype.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"
#include "engine/runtime/primitives/primitives.h"
#include "memory/planner/paging_plan.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

inline constexpr int kExitFailed = 1, kExitUsage = 2, kExitStopped = 130;
// Other ranks wait so long with an error, so that rank 0's comes first and mpirun, after a second,
// ends them.  It is longer than ranks of a busy machine differ in reaching the same error.
inline constexpr std::chrono::milliseconds kOtherRanksWait(3000);

// First in main.  Restarts the program with a GOMP_SPINCOUNT, unless the environment chooses how
// OpenMP's threads wait, or binds them to cores.  libgomp reads it before main runs.  Its default
// is to spin for milliseconds, on a busy machine on the cores of the threads that it waits for.
void LetWaitingThreadsSleep(char** argv);

// A heading of --help and its flags' names, the most wanted first.
struct FlagGroup {
  absl::string_view title;
  std::vector<absl::string_view> flags;
};

// Prepares the process (process.h) and parses absl flags.  Prints and exits for --help and
// --version.  `groups` has all flags of the program.  Each --set adds to the ones before it.
// Errors end the program with kExitUsage, also for positional arguments and empty values.
void ParseFlags(int argc, char** argv, absl::string_view usage,
                const std::vector<FlagGroup>& groups);

// Parses bytes, as in 1048576, 64M (2^20), 1.5G or 2e9.  `flag` is its name with --.
// Errors: InvalidArgument naming the flag.
absl::StatusOr<size_t> ParseBytes(absl::string_view flag, absl::string_view text);

// Separates the values of each --set in the flag's value.  No argument can hold it.
inline constexpr char kBetweenSets = '\0';
// The values of each --set.
std::vector<std::string> SplitSet(absl::string_view flag);

// The trainer's and the net's files, with --set and short flags applied.
struct ConfigFiles {
  Parsed<TrainerConfig> trainer;
  Parsed<NetConfig> net;
  AllreduceChoice allreduce;  // of `distributed`
};
// `device` is the --device that sums gradients, or "".  `spellings` has the overrides that short
// flags are.  `ranks` counts the ranks that are threads of this process.
absl::StatusOr<ConfigFiles> ReadFiles(const std::string& trainer_path,
                                      const std::vector<std::string>& overrides,
                                      const std::string& device, const Spellings& spellings,
                                      int ranks);

// Checks of the values of --`flag`.  Errors: InvalidArgument naming the flag and its value.

// Numbers, each above 0.
absl::StatusOr<std::vector<double>> PositiveNumbers(absl::string_view flag,
                                                    const std::vector<std::string>& texts);
struct FlagNumber {
  absl::string_view flag;
  double value;
};
absl::Status CheckLeast(double least, std::initializer_list<FlagNumber> numbers);
absl::Status CheckPositive(std::initializer_list<FlagNumber> numbers);
// Sizes with commas, each of at least one element of `type`.
absl::StatusOr<std::vector<size_t>> ParseSizes(absl::string_view flag, absl::string_view text,
                                               DType type);
// The element of `types` with this name.
absl::StatusOr<DType> TypeNamed(absl::string_view flag, absl::string_view name,
                                std::initializer_list<DType> types);
// "auto", "geeps" or "none".
absl::StatusOr<PlannerKind> PlannerNamed(absl::string_view flag, const std::string& name);
// Checks that a file's name ends in one of `endings`.
absl::Status CheckEnding(absl::string_view flag, const std::string& path,
                         std::initializer_list<absl::string_view> endings);

// For a flag about paging.  Checks that `device`, the value of --device, pages.
absl::Status CheckPages(absl::string_view flag, const std::string& device);

struct PageStorage {
  size_t host_bytes = ~size_t{0};
  std::string folder;  // of a file for pages beyond host_bytes
};
// From the values of --device, --host_memory and --page_folder.  An empty page_folder means
// DefaultPageFolder(default_folder).  Errors: InvalidArgument and DefaultPageFolder's.
absl::StatusOr<PageStorage> ParsePageStorage(const std::string& device,
                                             absl::string_view host_memory,
                                             const std::string& page_folder,
                                             const std::string& default_folder);

struct DeviceFlags {
  std::string kind = "cpu";  // "cpu", "sim" or "cuda"
  std::string memory = {};   // "", or bytes with an optional K, M, G suffix (powers of 1024)
  int threads = 0;           // 0: cores / ranks on this host
  bool tf32 = false;         // as in CudaLibraryOptions
  bool autotune = false;     // on a GPU: measure what is prepared, with CudaTuner
  ProcessGroup* communication = nullptr;  // of several ranks that tune alike
  // The caller among the ranks that are threads of this process.  They share its cores, and take
  // GPUs in this order.
  RankAndSize in_process = {};
};
struct DeviceChoice {
  std::unique_ptr<Device> device;
  std::unique_ptr<CudaSelector> tuner;  // of the primitives, or null
  // For TrainingOptions::tune.
  std::function<absl::Status(const std::function<absl::Status()>& prepare)> tune = nullptr;
  std::unique_ptr<Primitives> primitives;  // of the device
  int threads = 1;
};
absl::StatusOr<DeviceChoice> OpenDevice(const DeviceFlags& flags);

// The ranks of this process: one that mpirun or srun started, or several threads.
using Ranks = std::vector<std::unique_ptr<ProcessGroup>>;
// Seconds to wait for a silent rank.  Longer than any step, or a pass of one rank over the data.
inline constexpr int kStallTimeoutS = 300;
// Joins the ranks of mpirun or srun, or makes a world of `ranks` threads.  All run this program.
// Errors: InvalidArgument for ranks < 1, ranks > 1 under a launcher of several, a time below a
// second or beyond eleven days, and an unknown algorithm.
absl::StatusOr<Ranks> JoinRanks(AllreduceChoice allreduce, int ranks = 1,
                                int stall_timeout_s = kStallTimeoutS);

// Opens each rank's device and runs `body` there, one rank on the calling thread, several on a
// thread each.  Returns rank 0's OK or Cancelled.  Any other error of a rank ends the job (Fail).
absl::Status RunRanks(Ranks ranks, const DeviceFlags& flags,
                      const std::function<absl::Status(ProcessGroup&, const DeviceChoice&)>& body);

// Prints "error: ..." and ends the job.  Exits with kExitUsage for an InvalidArgument that begins
// with a flag's name, else with kExitFailed.  Other ranks give rank 0 time to print the same first.
// Only one of several threads prints.  The rank is named if others may have no error.
[[noreturn]] void Fail(ProcessGroup* communication, const absl::Status& status);

}  // namespace gyre
