// axis_weights.h: how each pixel of an axis is summed up from pixels of a source.  Pure
// functions.  Any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace gyre {

enum class ResizeFilter {
  kAntialiased,  // bilinear, as wide as the pixels of the result.  Weights of PyTorch expect it
  kArea,         // the mean of the pixels that each one of the result covers
  kLinear,       // bilinear between four pixels.  Fast, and aliases where it shrinks
  kNearest,      // for masks: no new values
};

// Weights are integers in units of 2^-kWeightBits.  A byte times 1 plus a half fits in 31 bits.
// Source: Pillow's PRECISION_BITS, 32 - 8 - 2.
inline constexpr int kWeightBits = 22;

// The pixels that each one of a range of results is the sum of.  Neither the first nor the last
// moves backward from result to result.
struct AxisWeights {
  std::vector<int64_t> first;         // of each result, the first source pixel
  std::vector<int64_t> offset = {0};  // of each result and of the end, its first weight
  std::vector<int32_t> weights;       // of pixels that follow each other

  int64_t results() const { return static_cast<int64_t>(first.size()); }
  int64_t count(int64_t result) const { return offset[result + 1] - offset[result]; }
  // One beyond the last source pixel.
  int64_t end(int64_t result) const { return first[result] + count(result); }

  // Adds a result.  `shares` sum up to 1.
  void Add(int64_t first_pixel, const std::vector<double>& shares);
};

// Of an axis of `from` pixels resized to `to`, the weights of results `begin` to `end` - 1.
// Preconditions: from > 0, 0 <= begin <= end <= to.
AxisWeights ResizeWeights(ResizeFilter filter, int64_t from, int64_t to, int64_t begin,
                          int64_t end);

// Of an axis of `size` pixels that stays, the weights of a Gaussian of `sigma` > 0 pixels, cut off
// at ceil(3 sigma).  Pixels beyond an edge mirror those inside, the edge's own left out.
AxisWeights BlurWeights(double sigma, int64_t size);

}  // namespace gyre
