// paging_schedule.h: what waits for what: from a plan's stays to the order of an iteration's
// copies.  A pure function; the pager executes it, and the planner predicts times by it.
#pragma once

#include <vector>

#include "memory/planner/paging_plan.h"

namespace gyre {

// Steps are positions in the plan's order.  The iteration's steps follow one another on one stream,
// fetches on another, write-backs on a third, what runs on the host on a fourth.  All waits are for
// work that was enqueued before, of the iteration before where a host step comes later in this one.
struct PagingSchedule {
  struct ScheduledFetch {
    int stay = 0;
    int after_step = -1;  // it may begin when this step is over; -1: before the first
    std::vector<int> after_writes = {};  // stays whose write-back must be over
    int after_host = -1;                 // host step that must be, the last on its page
  };
  // Of plan.host_steps.
  struct ScheduledHostStep {
    int after_step = -1;  // as of a fetch
    std::vector<int> after_writes = {};
  };
  struct ScheduledStep {
    std::vector<int> fetches = {};  // indices: those that it waits for
    std::vector<int> writes;  // stays: those whose write-back it waits for, whose place it takes
    std::vector<int> write_backs;    // stays: those that begin when it is over
    std::vector<int> fetches_after;  // indices, in order: those that are enqueued behind it
  };
  std::vector<ScheduledFetch> fetches;  // in the order of their stream
  std::vector<int> fetches_before;      // indices: enqueued before the first step
  std::vector<ScheduledStep> steps;
  int last_write = -1;  // a stay: whose write-back the end waits for; -1: it waits for none
  std::vector<ScheduledHostStep> host_steps;
  // By stay: the host step that must be over before its write-back, the last that used that memory.
  std::vector<int> host_before_write;
};

PagingSchedule SchedulePaging(const PagingPlan& plan);

// Of a block, to the device and to the host.
struct CopySeconds {
  double in = 0, out = 0;
};
CopySeconds CopySecondsOf(size_t bytes, size_t page_bytes, const PagingCosts& costs);

struct PagingTimes {
  double seconds = 0;          // from the first step's begin until all is over
  double stalled_seconds = 0;  // of that nothing computes
};

// When what happens in an iteration, in seconds from its begin: one that another has gone before.
struct PagingSpans {
  struct StepSpan {
    double begin = 0, end = 0;
  };
  struct CopySpan {
    int stay = 0;
    double begin = 0, end = 0;
  };
  std::vector<StepSpan> steps;    // by position; what one waits lies before its begin
  std::vector<CopySpan> fetches;  // in the order of their stream
  // Likewise; first those of the iteration before that end in this one: with them begin may be
  // negative.
  std::vector<CopySpan> write_backs;
  struct HostStepSpan {
    int index = 0;
    double begin = 0, end = 0;
  };
  std::vector<HostStepSpan> host_steps;  // likewise
};

// Each stream takes one thing at a time, and so does the disk each way; copies do not slow steps
// down.  spans: filled where given.
PagingTimes PredictTimes(const AccessTrace& trace, const PagingPlan& plan,
                         const PagingSchedule& schedule, const PagingCosts& costs,
                         PagingSpans* spans = nullptr);

}  // namespace gyre
