// page_speeds.h: the kernels by which activations travel in 16 bits, and how fast pages move where
// a run is, for its plan of paging to be made anew.
#pragma once

#include <span>
#include <string>

#include "memory/pager/page_copies.h"

namespace gyre {

// The net's own conversions; none for F32.
NarrowKernels KernelsTo(DType narrow);

// costs, and what is measured in its place: copies each way; where the plan rounds, conversions;
// where it has pages on disk, that in `folder`, unless it has no room for another file.  arena,
// pages: those of the plan; nothing is in flight, and what they hold stays, but for staging.  Waits
// for the stream.  Errors: those of allocation, copies and MeasureDisk.
struct PageMemory {
  std::span<std::byte> arena, pages;
  std::string folder;
};
absl::StatusOr<PagingCosts> MeasureCosts(Device& device, Stream& stream, const PagingPlan& plan,
                                         const PageMemory& memory, const NarrowKernels& kernels,
                                         PagingCosts costs);

}  // namespace gyre
