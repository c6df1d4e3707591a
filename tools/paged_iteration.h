// paged_iteration.h: an iteration of a plan of paging, run on `sim`: its copies are made, by
// throttled streams, and its steps slept, so that they and the copies do not take each other's
// core.
#pragma once

#include "memory/paging_plan.h"

namespace gyre {

// Seconds of an iteration, the median of `rounds`; one more comes before.  bandwidth: bytes a
// second of the copies of either way; 0: as fast as memory is.  Errors: those of the device.
absl::StatusOr<double> RunPagedIterations(const AccessTrace& trace, const PagingPlan& plan,
                                          double bandwidth, int rounds);

// The trace as the machine runs it: each step takes longer by what it takes to wake a thread, as
// found where all was in memory.  resident: seconds of an iteration there.
AccessTrace WithWaking(AccessTrace trace, double resident);

}  // namespace gyre
