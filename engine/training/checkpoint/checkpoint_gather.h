// checkpoint_gather.h: before a run goes on whose ranks have folders of their own, the files of a
// checkpoint come together: each folder has it whole then, and loading it is no matter of ranks.
//
// Every rank makes the same call, on the thread that talks to the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"

namespace gyre {

struct GatheredCheckpoint {
  std::string path;                  // in this rank's folder, where it is whole
  std::vector<std::string> skipped;  // of newer ones, which file is nowhere whole, and why
  // This rank has put it there, for all whose folder it is: it had not all of it.
  bool received = false;
};

// root: this rank's folder of checkpoints; name: of the one to go on from, "": the newest whose
// files are all somewhere.  Nothing where all ranks have one folder, or one of them cannot write in
// its: then what is there is what there is.  A copy that is broken is as one that is missing; of
// several that are whole the lowest rank's is sent, through all that lack it, in segments.
// Errors: NotFound if there is none; DataLoss if all are broken; of reading and writing, on the
// rank that has them; those of the process group.
absl::StatusOr<std::optional<GatheredCheckpoint>> GatherCheckpoint(ProcessGroup& communication,
                                                                   const std::string& root,
                                                                   const std::string& name);

}  // namespace gyre
