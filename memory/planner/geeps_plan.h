// geeps_plan.h: GeePS's placement policy, which the planner may choose and benchmarks compare with.
// Private to memory.
//
// Capacity is split in two.  Pinned blocks have memory of their own for good.  All others are in
// host memory and pass through an access buffer of at least twice the most that a step touches of
// them.  Its allocator goes through the steps' blocks in order, ahead of the running step as far
// as the buffer allows.  A block leaves when no step refers to it any longer.
//
// Differences from GeePS, whose allocator runs with the steps, so it fragments and waits:
//   allocator         runs ahead of time, as if copies took no time
//   no free range     all blocks leave and the step is laid out again
//   pinned parameter  no copy in the buffer, since nobody else writes it
//   needless copies   found here (overwritten, clean or dead values); GeePS's callers name them
// Source: Cui et al. 2016, GeePS, EuroSys, Algorithm 2.
#pragma once

#include <vector>

#include "memory/planner/page_layout.h"

namespace gyre {

struct GeepsInput {
  const LayoutInput& all;      // its begin and end are ignored
  std::vector<bool> resident;  // by block: must have memory of its own
  size_t capacity_bytes = 0;   // shared by all blocks, resident ones included
  // GeePS may pin any block that the peak uses.  True pins the last declared, false the first.
  bool last_first = false;
  size_t most_persistent_bytes = 0;  // resident or pinned
};

// By block: resident or pinned.  Persistent blocks are GeePS's parameters, others its local data.
// Precondition: the resident blocks and twice the most that a step touches of the others fit.
std::vector<bool> PinAsGeeps(const GeepsInput& input);

// Stays in the buffer, by first step.  input.accesses has no pinned blocks.  With next_fit a range
// is sought from the last one on, cyclically, otherwise from the begin.
// Precondition: the blocks of each step fit.
std::vector<Stay> LayOutAsGeeps(const LayoutInput& input, bool next_fit);

// One stay for each step and block that it touches, from input.begin on.  A step's blocks are
// written back if it writes them.
std::vector<Stay> LayOutNaively(const LayoutInput& input);

}  // namespace gyre
