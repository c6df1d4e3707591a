// ranks.h: the ranks of a command: how they join, run and end.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"
#include "tools/command_line/devices.h"

namespace gyre {

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

// What Fail does before it ends the program, such as to remove a temporary folder.
void BeforeFailing(std::function<void()> cleanup);

// Prints "error: ..." and ends the job.  Exits with kExitUsage for an InvalidArgument that begins
// with a flag's name, else with kExitFailed.  Other ranks give rank 0 time to print the same first.
// Only one of several threads prints.  The rank is named if others may have no error.
[[noreturn]] void Fail(ProcessGroup* communication, const absl::Status& status);

}  // namespace gyre
