// page_assignment.h: puts each page in host memory or in the file, at an offset.  Private to
// memory.
//
// A page on disk is copied twice.  So host memory holds the pages that are copied most often, and
// among equals those with the least time until they are read again.
#pragma once

#include "absl/status/status.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

// Gives a page to each block that leaves with a value.  Fills the plan's extents, staging and disk
// bytes.  Persistent blocks have the first pages, permanently.  Other pages share memory over time.
// With limits.homes, persistent blocks already say whether they are on disk.
// Errors: ResourceExhausted if host memory cannot hold the staging or the given homes.
absl::Status GivePages(const AccessTrace& trace, const PagingLimits& limits, PagingPlan& plan);

}  // namespace gyre
