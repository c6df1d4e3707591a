// strip_packing.h: offsets for blocks whose sizes and lifetimes are known ahead.
//
// With time to the right and offsets upwards, a block is a rectangle that can only move up and
// down.  The lowest strip that holds all of them without overlap is NP-hard to find (dynamic
// storage allocation, Garey & Johnson 1979, SR2), so this is a heuristic.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gyre {

struct PackItem {
  size_t bytes = 0;
  int first_step = 0, last_step = 0;  // inclusive, 0 <= first_step <= last_step
};

struct Packing {
  std::vector<size_t> offsets;  // by item; sums of other items' bytes, hence as aligned
  size_t extent = 0;            // the highest offset + bytes
};

// Depends on its argument alone.  Precondition: the sum of all bytes fits a size_t.
// Cost: at most 4 items^2 comparisons, for nets far fewer.  The 40,000 items of 10,000 layers take
// a third of a second.
// Source: Pisarchyk & Lee 2020, arXiv:2001.03288, "Greedy by Size for Offset Calculation" and
// "Greedy by Breadth".  Also tried: breadth with ties by duration, and area.  The lowest wins.
Packing PackBlocks(std::span<const PackItem> items);

// Bytes alive at each step in [0, steps).  Precondition: every last_step < steps.
std::vector<size_t> LiveBytes(std::span<const PackItem> items, int steps);

}  // namespace gyre
