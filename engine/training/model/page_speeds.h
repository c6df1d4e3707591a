// page_speeds.h: conversion kernels for pages of 16 bits, and measured speeds of pages for a new
// paging plan.
#pragma once

#include <span>
#include <string>

#include "memory/pager/page_copies.h"

namespace gyre {

// The net's own conversions.  None for F32.
NarrowKernels KernelsTo(DType narrow);

// Returns `costs` with measured speeds of copies each way.  Conversions are measured if the plan
// rounds.  The disk is, if the plan has pages there and `folder` has room for another file.
// Overwrites only the staging of the plan's arena and pages.  Waits for the stream.
// Precondition: nothing is in flight.  Errors: those of allocation, copies and MeasureDisk.
struct PageMemory {
  std::span<std::byte> arena, pages;
  std::string folder;
};
absl::StatusOr<PagingCosts> MeasureCosts(Device& device, Stream& stream, const PagingPlan& plan,
                                         const PageMemory& memory, const NarrowKernels& kernels,
                                         PagingCosts costs);

}  // namespace gyre
