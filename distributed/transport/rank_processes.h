// rank_processes.h: what this host's /proc tells of the job's ranks before MPI has brought them
// together, when no rank can ask another.
#pragma once

#include <string>

namespace gyre {

// What the thread that starts MPI is called from before MPI_Init on.  Any other rank of the host
// can see by it that this one has come.
inline constexpr char kMeetingThread[] = "gyre-ranks";

// The job's ranks that run on this host, by the environment that mpirun or srun has left in their
// processes.  One list or the other is empty where there is nothing to say.
struct AbsentRanks {
  std::string stopped;  // such as "rank 1 (process 4711) is stopped"
  std::string late;     // such as "rank 1 (process 4711) has not come to MPI_Init"
};
AbsentRanks FindAbsentRanks();

}  // namespace gyre
