// recomputation.h: finds steps that can run again, so that nobody stores their values until the
// next read, and searches for those that are worth it.  A pure function.  Private to memory.
//
// A value is the result of a step's write to a byte range.  Views and groups cut the ranges.  A
// step may run again if two conditions hold.  Each value that it reads is there again, or is made
// again before it.  Each value that it overwrites is dead, or is there again when all reruns end.
#pragma once

#include <functional>
#include <vector>

#include "memory/planner/paging_plan.h"
#include "memory/trace/trace_blocks.h"

namespace gyre {

class Recomputation {
 public:
  // The trace outlives the result.
  Recomputation(const AccessTrace& trace, const TraceBlocks& cut);

  // A step that can run again by itself, after the longest pause between readers of its values.
  struct Candidate {
    int step = 0;
    int before = 0;      // the reader that ends the pause
    double seconds = 0;  // of the step and the steps that must run before it
    size_t bytes = 0;    // of blocks that need not be stored or copied
  };
  const std::vector<Candidate>& candidates() const { return candidates_; }
  int steps() const { return static_cast<int>(trace_.steps.size()); }

  // The trace's steps in order.  Each chosen candidate runs again once, before the first step that
  // needs it after its pause, unless it cannot run there.
  std::vector<int> Order(const std::vector<bool>& chosen) const;

 private:
  // A byte range's value is the step that wrote it, or:
  static constexpr int kNothing = -1, kFromBefore = -2;
  struct Use {
    int range = 0;
    int value = kNothing;  // before the step
    bool reads = false;    // this value
    bool writes = false;
  };
  class Walk;

  void CutRanges(const TraceBlocks& cut);
  void FindUses();
  void FindPauses();
  void FindCandidates(const TraceBlocks& cut);

  const AccessTrace& trace_;
  std::vector<std::pair<int, int>> ranges_of_;  // by state: the first range and one beyond the last
  std::vector<bool> persistent_;                // by range
  std::vector<std::vector<Use>> uses_;          // by step
  struct User {
    int step = 0;
    bool reads = false, writes = false;
  };
  std::vector<std::vector<User>> users_;  // by range
  // By step: the readers around its longest pause.  The first may be the step itself.
  std::vector<std::pair<int, int>> pause_;
  std::vector<Candidate> candidates_;
};

// Tries orders with the n candidates that save most bytes for their time, then one more or fewer.
// `seconds` predicts an iteration in an order.  `without_any` is its result for the trace's order.
void ChooseOrder(const Recomputation& recomputation, double without_any,
                 const std::function<double(std::vector<int>)>& seconds);

}  // namespace gyre
