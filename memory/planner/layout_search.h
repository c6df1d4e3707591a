// layout_search.h: improves the layout of a short iteration by trying many small changes.  Private
// to memory.
//
// The allocator of page_layout.h looks at one step at a time, so a lasting block may split a range
// that a later one needs.  The search first chooses which blocks stay between two uses, and how
// early a fetch has its memory.  Then it packs all stays at once.
#pragma once

#include <functional>
#include <vector>

#include "memory/planner/page_layout.h"

namespace gyre {

struct LayoutSearch {
  const LayoutInput& all;        // of all blocks, in [0, end)
  std::vector<bool> may_choose;  // by block: whether residence is a choice
  std::vector<double> seconds;   // by step
  size_t most_resident = 0;      // bound of resident bytes if any is chosen
};

using SecondsOfLayout =
    std::function<double(const std::vector<bool>& resident, const std::vector<Stay>& stays)>;

// Starts near a layout of resident blocks and the stays of the others, which takes `best` seconds.
// Calls `seconds` for each layout that it packs.  The callee keeps the best.  A packing costs 10 of
// `budget`, a layout 1.  Depends on its arguments alone.
void SearchLayouts(const LayoutSearch& search, const std::vector<bool>& resident,
                   const std::vector<Stay>& stays, double best, int budget,
                   const SecondsOfLayout& seconds);

}  // namespace gyre
