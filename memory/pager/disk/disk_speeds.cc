#include "memory/pager/disk/disk_speeds.h"

#include <chrono>

#include "engine/runtime/check.h"
#include "engine/runtime/math.h"
#include "memory/pager/disk/page_file.h"

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

// Of each of four passes over the file.
constexpr std::chrono::milliseconds kMostTime(125);

// Transfers from the file's beginning up to `end`, which becomes how far time has sufficed.
absl::StatusOr<double> Speed(PageFile& file, const Staging& staging, std::byte* slots, bool reads,
                             size_t& end) {
  PageQueue queue(file, staging.slots);
  const Clock::time_point start = Clock::now();
  size_t at = 0;
  for (int slot = 0; at < end && Clock::now() - start < kMostTime;
       at += staging.slot_bytes, slot = (slot + 1) % staging.slots) {
    RETURN_IF_ERROR(queue.Await(slot));
    std::byte* const memory = slots + static_cast<size_t>(slot) * staging.slot_bytes;
    if (reads) {
      queue.Read(slot, at, memory, staging.slot_bytes);
    } else {
      queue.Write(slot, at, memory, staging.slot_bytes);
    }
  }
  for (int slot = 0; slot < staging.slots; ++slot) RETURN_IF_ERROR(queue.Await(slot));
  end = at;
  return static_cast<double>(at) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

absl::StatusOr<DiskSpeeds> MeasureDisk(const std::string& folder, const Staging& staging,
                                       std::byte* slots, size_t bytes) {
  size_t end = RoundUp(bytes, staging.slot_bytes);
  ASSIGN_OR_RETURN(const auto file, PageFile::Create(folder, end, /*home_bytes=*/0));
  DiskSpeeds speeds;
  // A place's first write, which finds it reserved alone, is not like those that an iteration
  // makes.
  for (int pass = 0; pass < 2; ++pass) {
    ASSIGN_OR_RETURN(speeds.write_bytes_per_s, Speed(*file, staging, slots, false, end));
  }
  for (int pass = 0; pass < 2; ++pass) {
    ASSIGN_OR_RETURN(speeds.read_bytes_per_s, Speed(*file, staging, slots, true, end));
  }
  return speeds;
}

}  // namespace gyre
