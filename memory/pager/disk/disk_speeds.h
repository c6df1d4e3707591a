// disk_speeds.h: measures a disk's speeds as the pager uses it, with all staging slots in flight
// and checksums.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

struct DiskSpeeds {
  double read_bytes_per_s = 0, write_bytes_per_s = 0;
};

// Uses a file of about `bytes` (1 or more) in `folder`, gone afterwards.  Blocks for at most half a
// second and the transfers then under way.  `slots` is memory of half the staging.
// Errors: those of PageFile::Create and PageQueue.
absl::StatusOr<DiskSpeeds> MeasureDisk(const std::string& folder, const Staging& staging,
                                       std::byte* slots, size_t bytes);

}  // namespace gyre
