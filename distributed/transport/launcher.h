// launcher.h: ranks before MPI_Init returns, when no rank can ask another.  The environment tells
// the launcher, rank and size of this process.  /proc tells the state of this host's ranks.
// Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gyre {

struct RankAndSize {
  int rank = 0, size = 1;
};

// Whether Open MPI's mpirun or Slurm's srun with PMIx started this process, so that MPI finds the
// other ranks.
bool StartedAsRank();
// Returns "mpirun", "srun" or "".
absl::string_view Launcher();
// The announced rank and size, or {0, 1}.
RankAndSize AnnouncedRank();
// Likewise among the ranks of this host.
RankAndSize AnnouncedLocalRank();
// Errors: FailedPrecondition if another launcher (srun without PMIx, another library's mpiexec)
// started several processes, each of which would run as a single rank.
absl::Status CheckLauncher();

// Name of the thread that starts MPI, from before MPI_Init on.  It shows other ranks of the host
// that this one has come.
inline constexpr char kMeetingThread[] = "gyre-ranks";

// Ranks of this job on this host, by the environment that mpirun or srun gave their processes.
// Either text is empty if there is nothing to report.
struct AbsentRanks {
  std::string stopped;  // for example "rank 1 (process 4711) is stopped"
  std::string late;     // for example "rank 1 (process 4711) has not come to MPI_Init"
};
AbsentRanks FindAbsentRanks();

}  // namespace gyre
