// strip_packing.h: addresses for blocks whose sizes and lifetimes are known ahead.
//
// Draw time to the right and addresses upwards: a block is a rectangle of fixed width and place in
// time, free to slide up and down.  The lowest strip that holds all of them without overlap is
// NP-hard to find (dynamic storage allocation: Garey & Johnson 1979, SR2), so this is a heuristic.
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
  std::vector<size_t> offsets;  // one for each item; sums of other items' bytes, hence as aligned
  size_t extent = 0;            // the highest offset + bytes
};

// Depends on its argument alone.  Precondition: the sum of all bytes fits a size_t.
// Cost: four times items^2 comparisons at most; of nets a small part of it (the 40,000 items of
// 10,000 layers: a third of a second).
// Source: Pisarchyk & Lee 2020, arXiv:2001.03288, "Greedy by Size for Offset Calculation" and
// "Greedy by Breadth"; we try the orders of both, by area and by duration, and keep the lowest.
Packing PackBlocks(std::span<const PackItem> items);

// bytes alive at each step in [0, steps).  Precondition: every last_step < steps.
std::vector<size_t> LiveBytes(std::span<const PackItem> items, int steps);

}  // namespace gyre
