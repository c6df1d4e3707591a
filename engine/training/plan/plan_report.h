// plan_report.h: what a run says of nets that the device's memory cannot hold at once: the plan,
// what less or more memory would cost, a picture, and how an iteration went.  Text for people, from
// plans alone.
#pragma once

#include <cstdint>
#include <string>

#include "engine/training/model/model.h"
#include "memory/report/plan_history.h"

namespace gyre {

// By state of the net's trace: "pinned", "parameters", "optimizer", "gradients" or "activations".
StateKinds KindsOf(const NetTrace& trace);

// What is where when, and what that is expected to cost.  Precondition: the plan trains and pages.
std::string DescribePaging(const ModelPlan& plan);

// A table of capacities, in parts of the one with which nothing is paged, down to the least that
// will do, against what an iteration is expected to take.  Precondition: the plan trains; its
// planner is not kNone.
std::string DescribeCapacities(const ModelPlan& plan);

// The training net's iteration as an SVG image, or as a page of HTML with `below` under it.
std::string DrawPlan(const ModelPlan& plan, const std::string& net, bool page,
                     const std::string& below);

// How the iterations of a run that pages went: each behind another, without those that set up.
struct PagedIterations {
  int64_t count = 0;
  double seconds = 0;          // of all of them
  double stalled_seconds = 0;  // likewise: that the compute stream waited for copies
  double hosted_seconds = 0;   // that updates on the host took in a step, the mean
  bool timed = false;          // what is expected of them stands on measured times; else on FLOPs
};

// What an iteration is expected to move and take: of a step of several the mean.
struct ExpectedIteration {
  double fetched_bytes = 0, written_bytes = 0;
  double seconds = 0, stalled_seconds = 0;
  size_t host_steps = 0;  // of the one that updates
};
// Of accumulate - 1 like `accumulating`, null where there are none, and one that updates.
ExpectedIteration ExpectIteration(const PagingPlan& updating, const PagingPlan* accumulating,
                                  int64_t accumulate);
// Precondition: the plan trains and pages.
ExpectedIteration ExpectIteration(const ModelPlan& plan);

// Bytes moved, and an iteration's time as it was and as it was expected, with the part in which it
// waited for copies, and what updates on the host took beside it.  measured.count > 0.  stalls:
// whether the device tells how long it waited.
std::string DescribeRun(const ExpectedIteration& expected, const PagedIterations& measured,
                        bool stalls);

}  // namespace gyre
