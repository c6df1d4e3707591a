// augmentation.h: how training samples vary, drawn anew for each position of the endless order.
#pragma once

#include <cstdint>

namespace gyre {

struct Augmentation {
  bool flip = false;  // left to right, one sample in two
  int64_t shift = 0;  // by up to so many pixels each way, both ways
};

// How a sample [H, W, C] is moved.  Pixel (y, x) of the result is that at (y + down, x' + right) of
// the sample, where x' is x, or W - 1 - x if it is flipped; 0 if there is none.
struct Move {
  bool flip = false;
  int64_t down = 0, right = 0;
};
// The move of the sample at a position of the endless order: the same however the positions are
// shared among ranks, and wherever a run began.
Move MoveAt(const Augmentation& augmentation, uint64_t seed, int64_t position);

}  // namespace gyre
