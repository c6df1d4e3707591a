// paging_plan.h: plans where each state is at each step, on a device that cannot hold all states
// at once.  A pure function of one iteration's access trace.
//
// Terms:
//   block  a state with its views, or a contiguous group of states, moved as a whole
//   stay   a range of steps during which a block is on the device, at one address
//   page   host memory, or a range of a file, that holds a block's value between two stays
//   home   where a persistent block is between iterations: on the device or in its page
//
// All addresses are planned ahead, so memory does not fragment.  Steps may run again, or on the
// host, copies may round to 16 bits, and pages may be in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "memory/resident/memory_plan.h"
#include "memory/trace/access_trace.h"

namespace gyre {

enum class PlannerKind : uint8_t {
  kAuto,   // ours, or GeePS's where that is faster; beyond 2,000 steps always ours
  kNone,   // every state is resident: PlanMemory
  kNaive,  // states are fetched before each step and leave after it; nothing overlaps
  kGeeps,  // GeePS's (geeps_plan.h), for comparison
};

struct PagingCosts {
  double to_device_bytes_per_s = 12e9;  // PCIe 3 x16
  double to_host_bytes_per_s = 12e9;
  double disk_read_bytes_per_s = 3e9;  // an NVMe drive on PCIe 3 x4
  double disk_write_bytes_per_s = 2e9;
  double convert_bytes_per_s = 2e11;  // F32 bytes, to or from 16 bits; a GPU moves 1.5 times these
  double host_step_bytes_per_s = 50e9;  // TraceStep::host_bytes: docs/benchmarks/cpu.md, optimizers
};

enum class Home : uint8_t { kDevice, kHostPage, kDiskPage };

struct Stay {
  int block = 0;
  int first_step = 0, last_step = 0;  // both touch the block; positions in the plan's order
  size_t offset = 0;                  // in the device arena; a multiple of kPlanAlignment
  bool fetched = false;               // from its page; otherwise the first step writes it
  bool written_back = false;          // to its page; otherwise the page is valid or nobody reads it
};

struct PagedBlock {
  std::vector<int> states;  // members, for people
  std::string name = {};    // of its largest state
  size_t bytes = 0;
  size_t page_bytes = 0;    // of its page and of each copy; below `bytes` for 16-bit copies
  size_t page = 0;          // offset in the page arena or file; kNoPage: never leaves with a value
  bool persistent = false;  // its home is the page
  bool on_disk = false;     // the page is in the file
};
inline constexpr size_t kNoPage = ~size_t{0};

// Host slots of copies from and to the disk, used first in, first out.  The slots for reads come
// first, then as many for writes.
struct Staging {
  size_t offset = 0;  // in the page arena
  size_t slot_bytes = 0;
  int slots = 0;  // each way; 0: nothing is on disk
  size_t bytes() const { return 2 * static_cast<size_t>(slots) * slot_bytes; }
};

// Device slots of 16-bit copies.  The first is for fetches, the second for write-backs.
struct DeviceStaging {
  size_t offset = 0;  // in the device arena
  size_t slot_bytes = 0;
  size_t bytes() const { return 2 * slot_bytes; }
};

struct PagingPlan {
  std::vector<PagedBlock> blocks;  // without a home on the device
  // By position: the trace's step that runs there.  All steps, in order, and recomputed ones again.
  std::vector<int> order;
  std::vector<Stay> stays;  // by first_step, then by block
  // Steps that run on the host.  With any, nothing is on disk.
  struct HostStep {
    int position = 0;
    std::vector<int> blocks = {};  // that it touches
  };
  std::vector<HostStep> host_steps;  // by position
  // `offset` is within the block, or in the device arena for a resident state (block -1).
  struct StateLocation {
    int block = -1;
    size_t offset = 0;
  };
  std::vector<StateLocation> states;  // by state
  std::vector<Home> homes;            // by persistent block of the device arena, in order
  size_t device_bytes = 0;            // extent of the device arena
  size_t page_bytes = 0;              // extent of the pages in host memory, then the staging
  size_t disk_bytes = 0;              // extent of the pages in the file
  size_t disk_home_bytes = 0;         // of these: the first ones, of persistent blocks
  Staging staging;
  DeviceStaging device_staging;  // 0 bytes without 16-bit copies
  // Fetches of a step, and a step, wait until the step before and its write-backs are over.
  bool foreground = false;
  // An iteration ends when its write-backs are over, and waits for no earlier iteration.
  bool self_contained = false;
  // Predicted for an iteration.  The stalled seconds, which wait for copies, are included.
  double seconds = 0, stalled_seconds = 0;
  size_t fetched_bytes = 0, written_bytes = 0;         // of an iteration
  size_t disk_read_bytes = 0, disk_written_bytes = 0;  // of these

  // The index in host_steps of the step there, or -1 if it runs on the device.
  int HostStepAt(int at) const;
  const PagedBlock& BlockOf(int stay) const { return blocks[stays[stay].block]; }
  // Whether steps read numbers rounded to 16 bits.  Results then depend on the plan.
  bool rounds() const { return device_staging.slot_bytes > 0; }
};

// The trace's steps that run on the host.
std::vector<int> HostStepsOf(const PagingPlan& plan);
// Bytes that the plan's host steps read and write in an iteration.
size_t HostBytes(const AccessTrace& trace, const PagingPlan& plan);

struct PagingLimits {
  size_t capacity_bytes = 0;
  size_t reserved_bytes = 0;  // of the capacity, for the caller
  // Optional residents must not raise the resident bytes above this.  Another net of the run may
  // need the rest.
  size_t most_resident_bytes = ~size_t{0};
  // Requests a self-contained plan, whose iteration can be captured whole.  Disk copies and host
  // steps cannot be captured.
  bool self_contained = false;
  // For pages and staging.  Further pages are on disk.
  size_t host_bytes = ~size_t{0};
  // Homes in the plan of another net of the run, made with the same host_bytes.  The two nets
  // share these first persistent blocks.  Further ones stay on the device.  Null: free to choose.
  const std::vector<Home>* homes = nullptr;
  // Host steps that another plan of this trace has chosen.  Null: free to choose.
  const std::vector<int>* host_steps = nullptr;
};

// Bytes include the blocks that must be resident and the staging of 16-bit copies.
struct LargestStep {
  int step = 0;
  size_t bytes = 0;
};
// The step that touches most bytes.  For kGeeps the bytes that it touches count twice.
// Precondition: PlanMemory accepts the trace.
LargestStep FindLargestStep(const AccessTrace& trace, const std::vector<Home>* homes = nullptr,
                            PlannerKind planner = PlannerKind::kAuto);

// Ignores blocks of the communication arena.  Depends on its arguments alone.
// Precondition: planner is not kNone.
// Errors: InvalidArgument as of PlanMemory.  ResourceExhausted if the largest step does not fit,
// naming it, its largest states and a sufficient capacity, or if host memory cannot hold the
// staging.
absl::StatusOr<PagingPlan> PlanPaging(const AccessTrace& trace, const PagingCosts& costs,
                                      const PagingLimits& limits,
                                      PlannerKind planner = PlannerKind::kAuto);

}  // namespace gyre
