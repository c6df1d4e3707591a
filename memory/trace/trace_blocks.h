// trace_blocks.h: checks a trace and cuts it into blocks.  Private to memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "memory/trace/access_trace.h"

namespace gyre {

// A state with its views, or a contiguous group of such states.
struct TraceBlock {
  std::vector<int> members = {};  // states, in order of declaration
  size_t bytes = 0;               // a multiple of kPlanAlignment
  size_t page_bytes = 0;          // likewise; about half if all its states may_narrow
  Arena arena = Arena::kDevice;
  bool persistent = false, pinned = false;
  int first_step = 0, last_step = -1;  // that touch it; 0 and -1 if none does
};

struct TraceBlocks {
  std::vector<TraceBlock> blocks;  // by their first member's declaration
  struct BlockOffset {
    int block = 0;
    size_t offset = 0;
  };
  std::vector<BlockOffset> states;  // by state, views included
};

struct BlockTouch {
  int block = 0;
  bool reads = false;  // the value from before; a step that writes only a slice reads the rest
  bool writes = false;
};
// By step.  Each block occurs once in a step.
std::vector<std::vector<BlockTouch>> FindTouches(const AccessTrace& trace, const TraceBlocks& cut);

// By state: whether it is not a view, and lasts beyond an iteration or is touched by a step, itself
// or in a view.
std::vector<bool> RootsInUse(const AccessTrace& trace);

// Errors: InvalidArgument as of PlanMemory.
absl::StatusOr<TraceBlocks> CutIntoBlocks(const AccessTrace& trace);

}  // namespace gyre
