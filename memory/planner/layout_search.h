// layout_search.h: makes a short iteration's layout better by trying many that differ in little.
// Private to memory.
//
// The allocator of page_layout.h knows no step after the one that it is at, so it may lay what
// lasts where something long will have to lie.  Here it is chosen first who stays between two uses
// and how long before its step a fetch has its place; then all stays are packed at once.
#pragma once

#include <functional>
#include <vector>

#include "memory/planner/page_layout.h"

namespace gyre {

struct LayoutSearch {
  std::vector<std::vector<BlockAccess>> accesses;  // by block, in order of steps
  std::vector<size_t> bytes;                       // by block
  std::vector<CopySeconds> copies;                 // by block
  std::vector<bool> persistent;                    // by block
  std::vector<bool> may_choose;                    // by block: whether it stays for good
  std::vector<double> seconds;                     // by step
  size_t room = 0;                                 // bytes, for what stays for good, too
  size_t most_resident = 0;                        // of them, for what is chosen to stay for good
};

using SecondsOfLayout =
    std::function<double(const std::vector<bool>& resident, const std::vector<Stay>& stays)>;

// Begins near a layout: what stays for good, and the stays of the rest.  It asks what others take
// that it tries; whoever is asked keeps the best.  budget: what it may cost; a layout that is
// packed is 10, one that is not worth it 1.  Depends on its arguments alone.
void SearchLayouts(const LayoutSearch& search, const std::vector<bool>& resident,
                   const std::vector<Stay>& stays, double best, int budget,
                   const SecondsOfLayout& seconds);

}  // namespace gyre
