// trace_blocks.h: a trace checked, and cut into what is placed as a whole.  Private to memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "memory/trace/access_trace.h"

namespace gyre {

// A state with its views, or a contiguous group of such states.
struct TraceBlock {
  std::vector<int> members;     // states, in order of declaration
  std::vector<size_t> offsets;  // of each member, within the block
  size_t bytes = 0;             // a multiple of kPlanAlignment
  size_t page_bytes = 0;        // likewise; less where all states in it may travel in 16 bits
  Arena arena = Arena::kDevice;
  bool persistent = false, pinned = false;
  int first_step = 0, last_step = -1;  // that touch it; of one that none does 0 and -1
};

struct TraceBlocks {
  std::vector<TraceBlock> blocks;  // by their first member's declaration
  struct BlockOffset {
    int block = 0;
    size_t offset = 0;
  };
  std::vector<BlockOffset> states;  // by state, views included
};

// What a step does to a block.
struct BlockTouch {
  int block = 0;
  bool reads = false;  // what is there before; whoever writes but a part leaves the rest
  bool writes = false;
};
// By step; each block once.
std::vector<std::vector<BlockTouch>> FindTouches(const AccessTrace& trace, const TraceBlocks& cut);

// Errors: InvalidArgument as of PlanMemory.
absl::StatusOr<TraceBlocks> CutIntoBlocks(const AccessTrace& trace);

}  // namespace gyre
