// paging_plan.h: a pure function from one iteration's access trace to where each state lies when,
// on a device that cannot hold all of them at once.
//
// A block (a state with its views, or a contiguous group) is in device memory in stays: from before
// a step that touches it to after one that does, at one address each time.  Between two stays its
// value, where anybody reads it again, lies in a page of host memory.  All addresses are given
// ahead, so nothing fragments.
//
// What is persistent has a home, where it is before an iteration and after: an address on the
// device where it stays for good, or a page.
//
// A step may run again just before one that reads what it wrote, which then needs no copy.
//
// Blocks of numbers that may be rounded travel in 16 bits, and their pages have half the bytes: on
// the device they are converted piece by piece.  What a step finds then depends on the plan.
//
// A step may run on the host, on pages, so that nothing it touches need be on the device for it: an
// optimizer's state never is.
//
// Pages that the host memory cannot hold lie in a file.  Copies from and to them go through slots
// of host memory, piece by piece.
//
// When a copy runs follows from what it waits for: a fetch, for the last that used its place and
// for its page; a step, for what it touches.  Copies each way are enqueued in the order in which
// steps need them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "memory/resident/memory_plan.h"
#include "memory/trace/access_trace.h"

namespace gyre {

enum class PlannerKind : uint8_t {
  kAuto,   // ours, or GeePS's where that is faster; of more than 2,000 steps always ours
  kNone,   // all is on the device for good: PlanMemory
  kNaive,  // a step's states come before it, and go behind it; nothing overlaps
  kGeeps,  // GeePS's (geeps_plan.h), to compare with
};

struct PagingCosts {
  double to_device_bytes_per_s = 12e9;  // PCIe 3 x16
  double to_host_bytes_per_s = 12e9;
  double disk_read_bytes_per_s = 3e9;  // an NVMe drive on PCIe 3 x4
  double disk_write_bytes_per_s = 2e9;
  double convert_bytes_per_s = 2e11;    // of F32, to or from 16 bits: a GPU moves 1.5 times as many
  double host_step_bytes_per_s = 50e9;  // TraceStep::host_bytes: docs/benchmarks/cpu.md, optimizers
};

// Of a persistent block.
enum class Home : uint8_t { kDevice, kHostPage, kDiskPage };

// Of a block on the device.
struct Stay {
  int block = 0;
  int first_step = 0, last_step = 0;  // that touch it: positions in the plan's order
  size_t offset = 0;                  // in the device arena; a multiple of kPlanAlignment
  bool fetched = false;               // from its page; else the first step writes it
  bool written_back = false;  // to its page; else the page has the value, or nobody reads it
};

struct PagedBlock {
  std::vector<int> states;  // its members, for people
  std::string name = {};    // its largest state's
  size_t bytes = 0;
  size_t page_bytes = 0;    // that are copied, and that its page has; fewer: of 16 bits
  size_t page = 0;          // in the pages' arena or file; kNoPage: it never leaves with a value
  bool persistent = false;  // its home is the page
  bool on_disk = false;     // the page is in the file
};
inline constexpr size_t kNoPage = ~size_t{0};

// What copies from and to the disk go through, first in, first out: slots for those that come in,
// then as many for those that go out.
struct Staging {
  size_t offset = 0;  // in the pages' arena
  size_t slot_bytes = 0;
  int slots = 0;  // each way; 0: nothing is on the disk
  size_t bytes() const { return 2 * static_cast<size_t>(slots) * slot_bytes; }
};

// What copies in 16 bits go through: a slot for those that come in, and one for those that go out.
struct DeviceStaging {
  size_t offset = 0;  // in the device arena
  size_t slot_bytes = 0;
  size_t bytes() const { return 2 * slot_bytes; }
};

struct PagingPlan {
  std::vector<PagedBlock> blocks;  // that have no home on the device
  // The trace's step that runs at each position: all in order, and some of them again between.
  std::vector<int> order;
  std::vector<Stay> stays;  // by first_step; where these are equal by block
  // Those that run on the host, by position.  Where there are any nothing is on disk.
  struct HostStep {
    int position = 0;
    std::vector<int> blocks = {};  // that it touches
  };
  std::vector<HostStep> host_steps;
  // By state: its block, or -1 if it lies for good at `offset` of the device arena; else there
  // within its block.
  struct StateLocation {
    int block = -1;
    size_t offset = 0;
  };
  std::vector<StateLocation> states;
  std::vector<Home> homes;     // by persistent block of the device arena, in order
  size_t device_bytes = 0;     // extent of the device arena
  size_t page_bytes = 0;       // extent of the pages in host memory, and of the staging behind them
  size_t disk_bytes = 0;       // extent of those in the file
  size_t disk_home_bytes = 0;  // its beginning: pages of persistent blocks
  Staging staging;
  DeviceStaging device_staging;  // of no bytes where nothing travels in 16 bits
  // A step's fetches begin once the step before and its write-backs are over; so does a step.
  bool foreground = false;
  // An iteration ends when its write-backs are over, and waits for none of the one before.
  bool self_contained = false;
  // What an iteration is expected to take, and of that what it waits for copies.
  double seconds = 0, stalled_seconds = 0;
  size_t fetched_bytes = 0, written_bytes = 0;         // of an iteration
  size_t disk_read_bytes = 0, disk_written_bytes = 0;  // of these

  // Whether steps find numbers that have been rounded: then where they do is a matter of the plan.
  bool rounds() const { return device_staging.slot_bytes > 0; }
};

// Those of the trace's steps that run on the host.
std::vector<int> HostStepsOf(const PagingPlan& plan);
// What the plan's steps on the host read and write there in an iteration.
size_t HostBytes(const AccessTrace& trace, const PagingPlan& plan);

struct PagingLimits {
  size_t capacity_bytes = 0;
  size_t reserved_bytes = 0;  // of it, for what the caller keeps in the same memory
  // What lies on the device for good, where that is free to choose, takes no more of it: another
  // net of the run may need the rest.
  size_t most_resident_bytes = ~size_t{0};
  // The plan is to be self-contained, so that an iteration can be captured whole; but copies from
  // and to the disk cannot be, nor what runs on the host.
  bool self_contained = false;
  // Of pages and staging.  What is beyond it is on the disk.
  size_t host_bytes = ~size_t{0};
  // Of another net of the run, whose first persistent blocks are this one's, too, and keep their
  // homes; those beyond stay on the device.  Null: all is free to choose.  It must have been
  // planned with the same host_bytes.
  const std::vector<Home>* homes = nullptr;
  // Steps of the trace that run on the host, as another plan of it has chosen.  Null: all is free
  // to choose.
  const std::vector<int>* host_steps = nullptr;
};

// The most bytes that a step touches, for GeePS twice; what stays for good, touched or not, counts
// at each, once, and so does the staging of copies in 16 bits.
struct LargestStep {
  int step = 0;
  size_t bytes = 0;
};
// Precondition: PlanMemory takes the trace.
LargestStep FindLargestStep(const AccessTrace& trace, const std::vector<Home>* homes = nullptr,
                            PlannerKind planner = PlannerKind::kAuto);

// Blocks of the communication arena are not its business.  Depends on its arguments alone.
// Precondition: planner is not kNone.
// Errors: those of PlanMemory for a malformed trace; ResourceExhausted if the largest step does not
// fit, naming it, its largest states and the bytes that would do; or if the host memory is less
// than the staging needs.
absl::StatusOr<PagingPlan> PlanPaging(const AccessTrace& trace, const PagingCosts& costs,
                                      const PagingLimits& limits,
                                      PlannerKind planner = PlannerKind::kAuto);

}  // namespace gyre
