// pack_records.h: packs a data set in shards.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/records/shard_format.h"
#include "engine/data/sets/dataset.h"
#include "tools/command_line/progress.h"

namespace gyre {

struct PackOptions {
  std::string folder;           // of the shards.  It exists
  bool raw = false;             // pictures as the values of the input, and not as their files
  bool shuffled = true;         // or in the data set's order
  uint64_t seed = 1;            // of the order
  uint64_t shard_bytes = 0;     // of a shard, about
  int threads = 1;              // each packs a shard at a time
  int64_t most_pixels = 0;      // of a picture, by its header
  int64_t max_bad_samples = 0;  // pictures that cannot be decoded, and are packed as they are
  std::string label_input{};    // whose numbers the index holds
};

// What all shards of the data set say, `name` being "train" or "test".
// Errors: those of reading, and InvalidArgument for samples that continue one another.
absl::StatusOr<RecordSet> PlanRecords(const Dataset& dataset, const std::string& name,
                                      const PackOptions& options);

// Decodes each picture, and writes the shards that are not there yet, as `set` says them.  Returns
// how many there were.  Names pictures that cannot be decoded on stderr.
// Errors: those of reading and writing, and FailedPrecondition for too many such pictures.
absl::StatusOr<int64_t> PackRecords(const Dataset& dataset, const RecordSet& set,
                                    const PackOptions& options, Progress& progress);

}  // namespace gyre
