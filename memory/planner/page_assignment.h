// page_assignment.h: which pages are in host memory and which in the file, and where.  Private to
// memory.
//
// What goes to the disk is copied twice.  So host memory is for what is copied most often, and of
// that for what has the least time until it is read again.
#pragma once

#include "absl/status/status.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

// Gives each block that leaves with a value its page, and the plan its extents, staging and bytes
// to and from the disk.  Pages of persistent blocks come first, for good; others share theirs over
// time. Where limits.homes is given, persistent blocks say themselves whether they are on disk.
// Errors: ResourceExhausted if the host memory holds no staging, or not the homes given.
absl::Status GivePages(const AccessTrace& trace, const PagingLimits& limits, PagingPlan& plan);

}  // namespace gyre
