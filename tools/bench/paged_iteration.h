// paged_iteration.h: runs an iteration of a paging plan on `sim`.  Copies are made, by throttled
// streams.  Steps sleep, so that neither takes the other's core.
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/dtype.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

// Bytes a second of copies (each way), and of memory that steps on the host read and write, which
// sleep.  0: copies at memory speed, no steps on the host.  Also the type of paged activations.
struct PagedOn {
  double copies = 0, host_steps = 0;
  DType page_activations = DType::kF32;
};

// Median seconds of `rounds` iterations, after one more.  A self-contained plan's iteration is
// captured once and replayed.  Errors: those of the device.
absl::StatusOr<double> RunPagedIterations(const AccessTrace& trace, const PagingPlan& plan,
                                          int rounds, const PagedOn& on);

// Bytes of F32 a second that one thread converts.  Precondition: a type of 16 bits.
absl::StatusOr<double> ConvertBytesPerSecond(DType page_activations);

struct NamedPlanner {
  std::string name;
  PlannerKind kind = PlannerKind::kAuto;
};
// The flags that programs which page have: --planners (auto, geeps and naive, the baseline, which
// no run can choose), --page_activations, --replay and --rounds.  Errors: InvalidArgument.
struct PagingFlags {
  std::vector<NamedPlanner> planners;
  DType page_activations = DType::kF32;
  bool replay = false;
  int rounds = 5;
};
absl::StatusOr<PagingFlags> ReadPagingFlags();

// Adds a thread's time to wake to each step, from `resident`, an iteration's seconds unpaged.
AccessTrace WithWaking(AccessTrace trace, double resident);

}  // namespace gyre
