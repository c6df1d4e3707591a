// command_line.h: what train, evaluate and export share: flags, ranks, devices, and how a command
// ends.  Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong flags, 130 stopped.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "distributed/communication_thread.h"
#include "engine/runtime/device.h"
#include "models/schema/parse.h"

namespace gyre {

inline constexpr int kExitFailed = 1, kExitUsage = 2, kExitStopped = 130;

// Parses absl flags; prints help and exits for --help.  Each --set adds to the ones before it.
// Positional arguments are refused.  Errors end the program with kExitUsage.
void ParseFlags(int argc, char** argv, absl::string_view usage);

// "a=1,b=2" given by --set; a value may hold commas, since each part must start with path=.
std::vector<std::string> SplitSet(absl::string_view flag);

// The trainer's and the net's files, with --set and short flags applied.
struct Files {
  Parsed<TrainerConfig> trainer;
  Parsed<NetConfig> net;
};
absl::StatusOr<Files> ReadFiles(const std::string& trainer_path,
                                const std::vector<std::string>& overrides);

struct DeviceFlags {
  std::string kind = "cpu";  // "cpu" or "sim"
  std::string memory = {};   // "", or bytes with an optional K, M, G suffix (powers of 1024)
  int threads = 0;           // 0: cores / ranks on this host
};
struct DeviceChoice {
  std::unique_ptr<Device> device;
  int threads = 1;
};
absl::StatusOr<DeviceChoice> OpenDevice(const DeviceFlags& flags);

// Joins mpirun's ranks, or makes a world of one.
absl::StatusOr<std::unique_ptr<CommunicationThread>> JoinRanks(const std::string& allreduce);

// Prints "error: ..." and ends the job.  Other ranks give rank 0 a moment to print the same first.
[[noreturn]] void Fail(CommunicationThread* communication, const absl::Status& status);

}  // namespace gyre
