// launcher.h: who has started this process, as which of how many ranks, by the environment alone:
// callable before MPI starts.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gyre {

struct RankAndSize {
  int rank = 0, size = 1;
};

// Whether Open MPI's mpirun has started this process, or Slurm's srun with PMIx, so that MPI finds
// the others.
bool StartedAsRank();
// Which of them has: "mpirun", "srun" or "".
absl::string_view Launcher();
// What it has announced; {0, 1} without it.
RankAndSize AnnouncedRank();
// Likewise among those of this host.
RankAndSize AnnouncedLocalRank();
// FailedPrecondition if anything else (srun without PMIx, another library's mpiexec) has started
// this process as one of several: each would take itself for the only one.
absl::Status CheckLauncher();

}  // namespace gyre
