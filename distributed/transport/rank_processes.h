// rank_processes.h: the state of this host's ranks by /proc, before MPI_Init returns.  Until then
// no rank can ask another.
#pragma once

#include <string>

namespace gyre {

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
