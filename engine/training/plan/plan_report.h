// plan_report.h: text for people about nets larger than the device.  It has the plan, the cost of
// other capacities, a picture, and how iterations went.  Made from plans alone.
#pragma once

#include <cstdint>
#include <string>

#include "engine/training/model/model_plan.h"
#include "memory/report/plan_picture.h"

namespace gyre {

// Bytes in MiB, such as "1.5".
std::string Mebibytes(double bytes);
std::string Mebibytes(size_t bytes);

// By state of the trace: "pinned", "parameters", "optimizer", "gradients" or "activations".
StateKinds KindsOf(const NetTrace& trace);

// For people: what an iteration does, step by step.  Where it pages, also what a step needs
// fetched, and what is written back once it is over.
std::string DescribeProgram(const NetPlan& plan);

// For people: the states' offsets, and when memory is fullest.
std::string DescribeMemory(const NetPlan& plan);

// When each state is where, and the expected cost.  Precondition: the plan trains and pages.
std::string DescribePaging(const ModelPlan& plan);

// A table of capacities and expected iteration times, from 100 % of the resident plan's memory down
// to the least possible.  Precondition: the plan trains, with a planner other than kNone.
std::string DescribeCapacities(const ModelPlan& plan);

// The training net's iteration as an SVG image, or as a page of HTML with `below` under it.
std::string DrawPlan(const ModelPlan& plan, const std::string& net, bool page,
                     const std::string& below);

// Measured iterations of a run that pages.  Each follows another, and none sets up.
struct PagedIterations {
  int64_t count = 0;
  double seconds = 0;          // in total
  double stalled_seconds = 0;  // in total: the compute stream waited for copies
  double hosted_seconds = 0;   // mean per step: updates on the host
  bool timed = false;          // the expectation is from measured times, not from FLOPs
};

// The mean of a step's iterations.
struct ExpectedIteration {
  double fetched_bytes = 0, written_bytes = 0;
  double seconds = 0, stalled_seconds = 0;
  size_t host_steps = 0;  // of the updating iteration
};
// The mean of accumulate - 1 iterations like `accumulating`, if not null, and one like `updating`.
ExpectedIteration ExpectIteration(const PagingPlan& updating, const PagingPlan* accumulating,
                                  int64_t accumulate);
// Precondition: the plan trains and pages.
ExpectedIteration ExpectIteration(const ModelPlan& plan);

// Bytes moved, and the measured and expected time of an iteration.  `stalls` adds the time that the
// device waited for copies.  Updates on the host have a time of their own.
// Precondition: measured.count > 0.
std::string DescribeRun(const ExpectedIteration& expected, const PagedIterations& measured,
                        bool stalls);

}  // namespace gyre
