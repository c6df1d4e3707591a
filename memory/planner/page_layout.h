// page_layout.h: which blocks are on the device in which steps, and where: an allocator's run over
// an iteration, ahead of time.  Private to memory.
//
// Step after step what it touches is given a place.  Where nothing free is long enough, blocks that
// the step does not touch make room: those whose copies have the most time until they are read
// again.  So a block stays as long as nobody needs its place, and its fetch may begin as soon as
// its own is free.  Where what a step touches lies in each other's way, all of it is laid out anew.
#pragma once

#include <vector>

#include "memory/planner/paging_schedule.h"
#include "memory/trace/trace_blocks.h"

namespace gyre {

// What steps do to one block.
struct BlockAccess {
  int step = 0;
  bool reads = false;  // what is there before
  bool writes = false;
  bool on_host = false;  // in the page; on the device the block is not then
};

struct LayoutInput {
  std::vector<std::vector<BlockAccess>>
      accesses;                     // by block, in order of steps; of pinned ones none
  std::vector<size_t> bytes;        // by block
  std::vector<bool> persistent;     // by block
  std::vector<double> begins;       // by step, and the iteration's end: in seconds
  std::vector<CopySeconds> copies;  // by block
  size_t begin = 0, end = 0;        // of the memory that the blocks share
};

// How it chooses where both would do.
struct LayoutPolicy {
  // Of free places: the one that is free for longest, so that a fetch can begin early; else the
  // shortest that will do, so that long ones stay whole.
  bool longest_free = true;
  // To be copied: those with the most time for it; else those that are read last.
  bool by_time = true;
};

// By first step.  Precondition: what each step touches fits.
std::vector<Stay> LayOut(const LayoutInput& input, const LayoutPolicy& policy);

}  // namespace gyre
