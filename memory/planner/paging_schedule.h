// paging_schedule.h: turns a plan's stays into the order of an iteration's copies and their waits.
// A pure function.  The pager executes the schedule, and the planner predicts times from it.
// Steps, fetches, write-backs and host steps are four streams, each in order.  They wait for:
//   step        its fetches, and write-backs from memory that it takes without a fetch
//   fetch       last step and write-back in its memory, last write-back and host step of its page
//   write-back  the last step of its stay, and the last host step on its page's memory
//   host step   the steps before it, and the write-backs of its pages
// All waits are for earlier work.  A wait for a later host step means the iteration before.
#pragma once

#include <vector>

#include "memory/planner/paging_plan.h"

namespace gyre {

// Steps are positions in the plan's order.
struct PagingSchedule {
  // A fetch or a host step.
  struct ScheduledWork {
    int stay = -1;                       // of a fetch
    int after_step = -1;                 // begins after this step; -1: before the first
    std::vector<int> after_writes = {};  // stays whose write-back it waits for
    int after_host = -1;                 // host step that a fetch waits for, the last on its page
  };
  struct ScheduledStep {
    std::vector<int> fetches = {};   // indices of fetches that it waits for
    std::vector<int> writes;         // stays whose memory it takes, once they are written back
    std::vector<int> write_backs;    // stays whose write-back begins after it
    std::vector<int> fetches_after;  // indices of fetches enqueued after it, in order
  };
  std::vector<ScheduledWork> fetches;  // in stream order
  std::vector<int> fetches_before;     // indices of fetches enqueued before the first step
  std::vector<ScheduledStep> steps;
  int last_write = -1;                    // stay whose write-back the end waits for; -1: none
  std::vector<ScheduledWork> host_steps;  // by plan.host_steps
  std::vector<int> host_before_write;     // by stay: the host step that its write-back waits for
};

PagingSchedule SchedulePaging(const PagingPlan& plan);

struct CopySeconds {
  double in = 0, out = 0;  // to the device, to the host
};
CopySeconds CopySecondsOf(size_t bytes, size_t page_bytes, const PagingCosts& costs);

// Of an iteration that follows another, in seconds from its begin.
struct PagingTimes {
  double seconds = 0;          // from the begin of the first step to the iteration's end
  double stalled_seconds = 0;  // of these no step computes
  struct WorkSpan {
    int index = 0;  // of the step's position, the copy's stay, or the host step
    double begin = 0, end = 0;
  };
  std::vector<WorkSpan> steps;        // by position; a step waits before its begin
  std::vector<WorkSpan> fetches;      // in stream order
  std::vector<WorkSpan> write_backs;  // likewise; first the iteration before's, from below 0
  std::vector<WorkSpan> host_steps;   // as write_backs
};

// Each stream, and the disk in each direction, does one thing at a time.  Copies do not slow steps
// down.
PagingTimes PredictTimes(const AccessTrace& trace, const PagingPlan& plan,
                         const PagingSchedule& schedule, const PagingCosts& costs);

}  // namespace gyre
