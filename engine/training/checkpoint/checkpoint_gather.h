// checkpoint_gather.h: makes a checkpoint whole in each folder before a run resumes, where ranks
// have folders of their own.  Loading it then involves no other rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"

namespace gyre {

struct GatheredCheckpoint {
  std::string path;                  // in this rank's folder, where it is whole
  std::vector<std::string> skipped;  // for each broken newer one, the file and the reason
  // This rank received missing files, for all ranks that share its folder.
  bool received = false;
};

// Makes checkpoint `name` whole in each folder.  Without a name it takes the newest checkpoint of
// which each file is whole somewhere.  `root` is this rank's folder of checkpoints.
// The lowest rank with a whole copy of a file sends it, in segments, along a chain of all ranks
// that lack it.  A broken copy counts as missing.
// Returns nothing if all ranks share one folder, if none exists, or if a rank cannot write in its
// own.  Every rank calls it, on its communication thread.  Blocks.
// Errors: NotFound if there is none, DataLoss if all are broken, those of the process group.
// Errors of reading and writing are those of the rank that has them.
absl::StatusOr<std::optional<GatheredCheckpoint>> GatherCheckpoint(ProcessGroup& communication,
                                                                   const std::string& root,
                                                                   const std::string& name);

}  // namespace gyre
