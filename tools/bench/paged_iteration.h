// paged_iteration.h: an iteration of a plan of paging, run on `sim`: its copies are made, by
// throttled streams, and its steps slept, so that they and the copies do not take each other's
// core.
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/dtype.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

// Bytes a second of copies of either way, and of what steps on the host read and write, which are
// slept; 0: copies as fast as memory is, no steps on the host.  And as what travels what may.
struct PagedOn {
  double copies = 0, host_steps = 0;
  DType page_activations = DType::kF32;
};

// Seconds of an iteration, the median of `rounds`; one more comes before.  Of a plan that is
// self-contained it is captured once and replayed.  Errors: those of the device.
absl::StatusOr<double> RunPagedIterations(const AccessTrace& trace, const PagingPlan& plan,
                                          int rounds, const PagedOn& on);

// Bytes of F32 a second that one thread converts.  Precondition: to 16 bits.
absl::StatusOr<double> ConvertBytesPerSecond(DType page_activations);

// Of --planners.  Errors: InvalidArgument for one that is none, or that pages nothing.
struct NamedPlanner {
  std::string name;
  PlannerKind kind = PlannerKind::kAuto;
};
absl::StatusOr<std::vector<NamedPlanner>> PlannersNamed(const std::vector<std::string>& names);

// The trace as the machine runs it: each step takes longer by what it takes to wake a thread, as
// found where all was in memory.  resident: seconds of an iteration there.
AccessTrace WithWaking(AccessTrace trace, double resident);

}  // namespace gyre
