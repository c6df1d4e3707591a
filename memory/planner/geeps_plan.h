// geeps_plan.h: what lies where, when, by GeePS's placement policy; for ours to choose from, and to
// be measured against.  Private to memory.
//
// Capacity is cut in two.  Some blocks are pinned: they have memory of their own for good.  All
// others live in host memory and go through an access buffer, of twice the most that a step touches
// of them, or more: an allocator goes through the steps' blocks in order, as far ahead of the step
// that works as the buffer holds, and counts who refers to each; once nobody does, it leaves.
//
// What is otherwise than in the original: its allocator works while steps run, so that it fragments
// and waits; this one has run ahead, as if copies took no time, and where nothing in one piece is
// left for the next step, all leaves and the step is laid out anew.  A parameter that is pinned
// needs no copy in the buffer, since nobody else writes it.  Its callers say what is not to be
// fetched or kept; here that is found: what is overwritten, clean or dead.
// Source: Cui et al. 2016, GeePS, EuroSys, Algorithm 2.
#pragma once

#include <vector>

#include "memory/planner/page_layout.h"

namespace gyre {

struct GeepsInput {
  const LayoutInput& all;      // begin and end are not looked at
  std::vector<bool> resident;  // by block: has memory of its own, without a choice
  size_t capacity_bytes = 0;   // of the memory that blocks share, those that are resident included
  // Of what the peak uses it pins any; here the last or the first declared.
  bool last_first = false;
  bool may_pin_persistent = true;
  size_t most_persistent_bytes = ~size_t{0};  // that are resident or pinned
};

// By block: resident or pinned.  Blocks that are not persistent are local data, others parameters.
// Precondition: what is resident and twice the most that a step touches of the rest fits.
std::vector<bool> PinAsGeeps(const GeepsInput& input);

// The buffer, by first step; input.accesses are those of blocks that are not pinned.
// next_fit: a place is sought from the last one on, round and round; else from the begin.
// Precondition: what each step touches fits.
std::vector<Stay> LayOutAsGeeps(const LayoutInput& input, bool next_fit);

// Of each block a stay at each step that touches it, from input.begin on, written back where the
// step writes it.
std::vector<Stay> LayOutNaively(const LayoutInput& input);

}  // namespace gyre
