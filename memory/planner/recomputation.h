// recomputation.h: which steps of a trace can run again so that what they made need not lie
// anywhere until it is read again; a plan's order with some of them; and the search for those that
// are worth it.  A pure function.  Private to memory.
//
// A value is what a step wrote to some bytes.  A step may run again where everything that it reads
// has the value that it had when the step ran first, or is made again before it, too; and where
// what it overwrites is dead, or has its value again when all of these are over.  Values are told
// apart byte range by byte range, as views and groups cut them.
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

  // A step that can run again, alone: behind the longest time in which nobody reads what it made.
  struct Candidate {
    int step = 0;
    int before = 0;      // step
    double seconds = 0;  // of it, and of those that must run before it
    size_t bytes = 0;    // of blocks that need not be kept or copied
  };
  const std::vector<Candidate>& candidates() const { return candidates_; }
  int steps() const { return static_cast<int>(trace_.steps.size()); }

  // The trace's steps in order, and the chosen candidates, each once, before the first step that
  // needs it behind its longest time.  What cannot run again there does not.
  std::vector<int> Order(const std::vector<bool>& chosen) const;

 private:
  // A byte range's values: by the step that wrote it.
  static constexpr int kNothing = -1, kFromBefore = -2;
  // Of a byte range by a step.
  struct Use {
    int range = 0;
    int value = kNothing;  // that is there
    bool reads = false;    // it
    bool writes = false;
  };
  class Walk;

  void CutRanges(const TraceBlocks& cut);
  void FindUses();
  void FindPauses();
  void FindCandidates(const TraceBlocks& cut);

  const AccessTrace& trace_;
  std::vector<std::pair<int, int>> ranges_of_;  // by state: the first and one beyond
  std::vector<bool> persistent_;                // by range
  std::vector<std::vector<Use>> uses_;          // by step
  struct User {
    int step = 0;
    bool reads = false, writes = false;
  };
  std::vector<std::vector<User>> users_;  // by range
  // By step: the last that reads what it made before nobody does for longest, and the next.
  std::vector<std::pair<int, int>> pause_;
  std::vector<Candidate> candidates_;
};

// Tries orders: so many of the candidates that save most for their time, then one more or fewer.
// seconds: that an iteration takes in an order; without_any: in the trace's.
void ChooseOrder(const Recomputation& recomputation, double without_any,
                 const std::function<double(std::vector<int>)>& seconds);

}  // namespace gyre
