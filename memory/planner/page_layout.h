// page_layout.h: chooses which blocks are on the device in which steps, and their offsets.  It runs
// an allocator over an iteration ahead of time.  Private to memory.
//
// Each step's blocks get memory in turn.  If no free range is long enough, blocks that the step
// does not touch are evicted.  Their copies have the most time until the next read.  So a block
// stays until its memory is needed, and its fetch may begin once its range is free.  If the step's
// own blocks are in the way, all blocks are evicted and the step is laid out again.
#pragma once

#include <vector>

#include "memory/planner/paging_schedule.h"
#include "memory/trace/trace_blocks.h"

namespace gyre {

// A step's access to one block.
struct BlockAccess {
  int step = 0;
  bool reads = false;  // the value from before the step
  bool writes = false;
  bool on_host = false;  // in the page; the block is not on the device then
};

struct LayoutInput {
  std::vector<std::vector<BlockAccess>>
      accesses;                     // by block, in order of steps; none of resident blocks
  std::vector<size_t> bytes;        // by block
  std::vector<bool> persistent;     // by block
  std::vector<double> begins;       // by step, in seconds, then the end of the iteration
  std::vector<CopySeconds> copies;  // by block
  size_t begin = 0, end = 0;        // of the memory that the blocks share
};

struct LayoutPolicy {
  // True takes the range that is free for longest, so that a fetch can begin early.  False takes
  // the shortest sufficient range, so that long ones stay whole.
  bool longest_free = true;
  // True evicts blocks with the most time for their copies, false those that are read last.
  bool by_time = true;
};

// Stays by first step.  Precondition: the blocks of each step fit.
std::vector<Stay> LayOut(const LayoutInput& input, const LayoutPolicy& policy);

// Puts stays into a plan's order.  Sets which are fetched and written back, as their blocks are
// read and written.  With keep_dead a written value goes back even if nobody reads it.
void FindCopies(const LayoutInput& input, bool keep_dead, std::vector<Stay>& stays);

inline constexpr size_t kNoOffset = ~size_t{0};

}  // namespace gyre
