// command_line.h: what the tools share: flags, ranks, devices, and how a command
// ends.  Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong flags, 130 stopped.
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

namespace gyre {

inline constexpr int kExitFailed = 1, kExitUsage = 2, kExitStopped = 130;
// With an error of theirs, for rank 0's to come first and mpirun, which waits for a second, to end
// them: longer than ranks of a busy machine differ in reaching the same one.
inline constexpr std::chrono::milliseconds kOtherRanksWait(3000);

// First in main: starts the program anew with a GOMP_SPINCOUNT, unless the environment has chosen
// how OpenMP's threads wait, or binds them to cores.  libgomp reads it before any code of ours
// runs.  By default they spin for milliseconds, and on a busy machine they do it on the cores of
// those they wait for.
void LetWaitingThreadsSleep(char** argv);

// A heading of --help, and the names of the flags under it, those that most want first.
struct FlagGroup {
  absl::string_view title;
  std::vector<absl::string_view> flags;
};

// Prepares the process (process.h) and parses absl flags; prints and exits for --help and
// --version. groups: of all flags that the program defines.  Each --set adds to the ones before it.
// Positional arguments and empty values are refused.  Errors end the program with kExitUsage.
void ParseFlags(int argc, char** argv, absl::string_view usage,
                const std::vector<FlagGroup>& groups);

// Bytes, as in 1048576, 64M (2^20), 1.5G or 2e9.  flag: its name with --, for the error, which is
// an InvalidArgument.
absl::StatusOr<size_t> ParseBytes(absl::string_view flag, absl::string_view text);

// In the flag's value, between what each --set has given: no argument holds it.
inline constexpr char kBetweenSets = '\0';
// What each --set has given.
std::vector<std::string> SplitSet(absl::string_view flag);

// The trainer's and the net's files, with --set and short flags applied.
struct ConfigFiles {
  Parsed<TrainerConfig> trainer;
  Parsed<NetConfig> net;
  AllreduceChoice allreduce;  // of `distributed`
};
// device: where gradients will be summed, as --device has it; "" if none are.  spellings: of the
// overrides that short flags are.  ranks: those that will be threads of this process.
absl::StatusOr<ConfigFiles> ReadFiles(const std::string& trainer_path,
                                      const std::vector<std::string>& overrides,
                                      const std::string& device, const Spellings& spellings,
                                      int ranks);

// What follows checks values of --`flag`.  Errors: InvalidArgument naming the flag and its value.

// The numbers, each above 0.
absl::StatusOr<std::vector<double>> PositiveNumbers(absl::string_view flag,
                                                    const std::vector<std::string>& texts);
struct FlagNumber {
  absl::string_view flag;
  double value;
};
absl::Status CheckLeast(double least, std::initializer_list<FlagNumber> numbers);
absl::Status CheckPositive(std::initializer_list<FlagNumber> numbers);
// Sizes with commas, of arrays of one `type` or more elements.
absl::StatusOr<std::vector<size_t>> ParseSizes(absl::string_view flag, absl::string_view text,
                                               DType type);
// The one of `types` that has this name.
absl::StatusOr<DType> TypeNamed(absl::string_view flag, absl::string_view name,
                                std::initializer_list<DType> types);
// "auto", "geeps", "naive" or "none".
absl::StatusOr<PlannerKind> PlannerNamed(absl::string_view flag, const std::string& name);
// A file's name ends as one of `endings` does.
absl::Status CheckEnding(absl::string_view flag, const std::string& path,
                         std::initializer_list<absl::string_view> endings);

// For a flag that says how pages move.  device: --device's.  Errors: InvalidArgument where none do.
absl::Status CheckPages(absl::string_view flag, const std::string& device);

// Where what the device does not hold lies.
struct PageStorage {
  size_t host_bytes = ~size_t{0};
  std::string folder;  // of a file for what is beyond them
};
// By the values of --device, --host_memory and --page_folder; if the latter is empty, where
// DefaultPageFolder(default_folder) says.  Errors: InvalidArgument; DefaultPageFolder's.
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
  // Of the caller among the ranks that are threads of this process: they share its cores, and take
  // GPUs in this order.
  RankAndSize in_process = {};
};
struct DeviceChoice {
  std::unique_ptr<Device> device;
  std::unique_ptr<CudaSelector> tuner;  // of the primitives, or null
  // TrainingOptions::tune of it.
  std::function<absl::Status(const std::function<absl::Status()>& prepare)> tune = nullptr;
  std::unique_ptr<Primitives> primitives;  // of the device
  int threads = 1;
};
absl::StatusOr<DeviceChoice> OpenDevice(const DeviceFlags& flags);

// The ranks that live in this process: the one that mpirun or srun has started, or `ranks` that
// are threads.
using Ranks = std::vector<std::unique_ptr<ProcessGroup>>;
// Beyond what a step, or a pass over the data that one rank alone makes, takes; each rank waits so
// long for a silent one.
inline constexpr int kStallTimeoutS = 300;
// Joins the ranks of mpirun or srun, or makes a world of `ranks`.  All run this program.
// Errors: InvalidArgument for fewer than 1, or more than 1 beside several of the launcher's, for a
// time below a second or beyond eleven days, and for an algorithm that is none.
absl::StatusOr<Ranks> JoinRanks(AllreduceChoice allreduce, int ranks = 1,
                                int stall_timeout_s = kStallTimeoutS);

// Opens each rank's device and runs `body` there: one rank on the calling thread, several on a
// thread each.  Returns what rank 0's body did: OK or Cancelled, because any other error, of any
// rank, ends the job (Fail).
absl::Status RunRanks(Ranks ranks, const DeviceFlags& flags,
                      const std::function<absl::Status(ProcessGroup&, const DeviceChoice&)>& body);

// Prints "error: ..." and ends the job, with kExitUsage for an InvalidArgument that begins with a
// flag's name, which is where the mistake is; else with kExitFailed.  Other ranks give rank 0 a
// moment to print the same first; of ranks that are threads one alone prints.  The rank is named
// where others may have had no error.
[[noreturn]] void Fail(ProcessGroup* communication, const absl::Status& status);

}  // namespace gyre
