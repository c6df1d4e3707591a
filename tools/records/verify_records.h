// verify_records.h: reads all shards of a folder, and compares every checksum and count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

struct VerifiedRecords {
  std::vector<std::string> sets;    // for people: a line each
  std::vector<std::string> faults;  // with the file, sorted
};

// Errors: those of listing, and NotFound for a folder without shards.
absl::StatusOr<VerifiedRecords> VerifyRecords(const std::string& folder, int threads);

}  // namespace gyre
