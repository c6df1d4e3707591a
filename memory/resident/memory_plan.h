// memory_plan.h: a pure function from one iteration's access trace to where each state lies.
//
// Resident placement: every state has one place.  Persistent states come first, in order of
// declaration, so that traces which declare the same persistent states agree on their offsets.  The
// others share memory with those whose lifetimes do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "memory/trace/access_trace.h"

namespace gyre {

// A state's memory, reserved from the first step that touches it, a view of it or a member of its
// group, to the last (persistent, or in the communication arena: all steps).  One that no step
// touches has first_step 0, last_step -1 and, in the device arena, no memory: its offset is 0.
struct Placement {
  Arena arena = Arena::kDevice;
  size_t offset = 0;  // within its arena; a multiple of kPlanAlignment but for views
                      // and group members after the first (64)
  int first_step = 0, last_step = -1;
};

struct MemoryPlan {
  std::vector<Placement> placements;  // one for each state of the trace, views included
  size_t device_bytes = 0;            // extent of the device arena
  size_t communication_bytes = 0;     // extent of the communication arena
  size_t lower_bound_bytes = 0;       // most device bytes alive at one step: no plan needs fewer
  int peak_step = 0;                  // where that is
};

// Errors: InvalidArgument for a malformed trace (index out of range, a view beyond its base, views
// in a circle, a group of unlike members, more bytes than can be added up, a non-persistent state
// read although neither an earlier step nor this one writes it or what it shares memory with),
// naming step and state; ResourceExhausted if the device arena and reserved_bytes, what the caller
// keeps of the same memory for itself, exceed capacity_bytes together, naming the peak step, its
// largest states with their bytes, the capacity, and the smallest that would do.
absl::StatusOr<MemoryPlan> PlanMemory(const AccessTrace& trace, size_t capacity_bytes,
                                      size_t reserved_bytes = 0);

// The last of these errors alone.  Precondition: the plan is of this trace.
absl::Status CheckCapacity(const AccessTrace& trace, const MemoryPlan& plan, size_t capacity_bytes,
                           size_t reserved_bytes);

// A table for people: bytes by arena, and the largest states alive at the peak.  Precondition: the
// plan is of this trace.
std::string Explain(const AccessTrace& trace, const MemoryPlan& plan);

}  // namespace gyre
