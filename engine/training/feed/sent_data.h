// sent_data.h: a trainer's data where rank 0's host alone has their files: the others are sent them
// before the run, and read them from a temporary folder of this user alone, which is gone
// afterwards; where the run is killed, with the next one (PrivateFolder).
#pragma once

#include <cstdint>
#include <string>

#include "distributed/process_group.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {

struct SentData {
  RunData data;
  // Sent to so many temporary folders; 0 where all ranks share rank 0's.
  int folders = 0;
  int64_t files = 0;
  uint64_t bytes = 0;
};

// OpenData, to train.  Every rank makes the same call, on the thread that talks to the others.
// Ranks that share rank 0's folder of temporary files (TMPDIR, or /tmp) read the files where the
// trainer says, the others those that rank 0 has read for it.
// Errors: those of OpenData; NotFound and the like for a temporary folder; ResourceExhausted where
// one is full; DataLoss for a file that changes meanwhile; those of the process group.
absl::StatusOr<SentData> OpenSentData(const Parsed<TrainerConfig>& trainer,
                                      const Parsed<NetConfig>& net, ProcessGroup& communication);

}  // namespace gyre
