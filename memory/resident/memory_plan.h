// memory_plan.h: gives every state of a trace one offset for the iteration.  A pure function.
//
// Persistent states come first, in order of declaration, so traces that declare the same persistent
// states agree on their offsets.  Other states share memory if their lifetimes do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "memory/trace/access_trace.h"

namespace gyre {

// A state's memory.  Its lifetime is the steps from the first to the last touch of the state, its
// views or its group.  Persistent and communication states live in all steps.  An untouched state
// has lifetime 0 to -1 and, in the device arena, no memory and offset 0.
struct Placement {
  Arena arena = Arena::kDevice;
  size_t offset = 0;  // within its arena; a multiple of kPlanAlignment but for views
                      // and group members after the first (64)
  int first_step = 0, last_step = -1;
  bool operator==(const Placement&) const = default;
};

struct MemoryPlan {
  std::vector<Placement> placements;  // by state, views included
  size_t device_bytes = 0;            // extent of the device arena
  size_t persistent_bytes = 0;        // of these: the first ones, of persistent states
  size_t communication_bytes = 0;     // extent of the communication arena
  size_t lower_bound_bytes = 0;       // most device bytes alive at one step; no plan needs fewer
  int peak_step = 0;                  // that step
  bool operator==(const MemoryPlan&) const = default;
};

// Precondition: the trace is well formed (access_trace.h).
// Errors:
//   InvalidArgument    More than 2^60 bytes, or a read of a non-persistent state whose memory no
//                      step up to this one has written.  Names step and state.
//   ResourceExhausted  Device arena and the caller's reserved_bytes exceed capacity_bytes.  Names
//                      the peak step, its largest states, the capacity and the least sufficient.
absl::StatusOr<MemoryPlan> PlanMemory(const AccessTrace& trace, size_t capacity_bytes,
                                      size_t reserved_bytes = 0);

// Errors: ResourceExhausted as above.  Precondition: the plan is of this trace.
absl::Status CheckCapacity(const AccessTrace& trace, const MemoryPlan& plan, size_t capacity_bytes,
                           size_t reserved_bytes);

// A table of bytes by arena and of the largest states alive at the peak.  The same precondition.
std::string Explain(const AccessTrace& trace, const MemoryPlan& plan);

}  // namespace gyre
