// launcher.h: the launcher of this process, its rank and the number of ranks, by the environment
// alone.  Callable before MPI starts.
#pragma once

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

}  // namespace gyre
