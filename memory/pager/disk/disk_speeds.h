// disk_speeds.h: how fast a disk takes pages and gives them back, measured as the pager uses it:
// transfers of slots of staging, as many at once, with their checksums.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

struct DiskSpeeds {
  double read_bytes_per_s = 0, write_bytes_per_s = 0;
};

// In a file of its own in `folder`, of about `bytes` (1 or more) and gone afterwards.  Takes no
// more than half a second, but for transfers under way.  slots: memory of half the staging's bytes.
// Errors: those of PageFile::Create and PageQueue.
absl::StatusOr<DiskSpeeds> MeasureDisk(const std::string& folder, const Staging& staging,
                                       std::byte* slots, size_t bytes);

}  // namespace gyre
