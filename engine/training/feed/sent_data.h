// sent_data.h: sends a trainer's data from rank 0's host, which alone has their files, to the other
// hosts before a run.  A private temporary folder holds them (PrivateFolder).  It is removed
// afterwards, with pictures after the run, or after a kill by the next run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {

struct SentData {
  RunData data;
  // The number of folders that the data were sent to, 0 if all ranks share rank 0's.
  int folders = 0;
  int64_t files = 0;
  uint64_t bytes = 0;
};

// OpenData, to train, with `fit` and `memory_bytes`.  Every rank calls it, on its communication
// thread. A rank that shares rank 0's folder of temporary files (TMPDIR, or /tmp) reads the
// original files. Other ranks read the copies that rank 0 has sent, of lists with the files that
// they name. Errors: those of OpenData, of PlaceList and of the process group.  ResourceExhausted
// if a temporary folder is full, NotFound and the like if there is none, DataLoss for a file that
// changes meanwhile.
absl::StatusOr<SentData> OpenSentData(const Parsed<TrainerConfig>& trainer,
                                      const Parsed<NetConfig>& net, const Fit& fit,
                                      ProcessGroup& communication, size_t memory_bytes = 0);

// The files that a list of pictures names, and where copies of them lie so that a copy of the list
// means them.
struct SentList {
  // Relative to a folder that holds all.  The list lies so deep that "../" in it stays within.
  std::string list;
  struct ListedFile {
    std::string from, to;  // to: relative to that folder
  };
  std::vector<ListedFile> files = {};  // each once
};

// `masks`: the second column has paths, too.
// Errors: those of ReadText.  InvalidArgument, with the line, for a path that is absolute or has
// ".." behind a folder: a copy elsewhere would not find it.
absl::StatusOr<SentList> PlaceList(const std::string& list, bool masks);

}  // namespace gyre
