// augmentation.h: random variation of training samples, drawn anew for each position of the order.
#pragma once

#include <cstdint>

namespace gyre {

struct Augmentation {
  bool flip = false;  // left to right, one sample in two
  int64_t shift = 0;  // at most so many pixels each way, on both axes
};

// The move of a picture [H, W, C] or a mask [H, W].  Pixel (y, x) of the result is pixel (y + down,
// X + right) of the sample, or 0 outside it.  X is x, or W - 1 - x if flipped.
struct Move {
  bool flip = false;
  int64_t down = 0, right = 0;
};
// The move at a position of the endless order, whatever the ranks and wherever the run began.
Move MoveAt(const Augmentation& augmentation, uint64_t seed, int64_t position);

}  // namespace gyre
