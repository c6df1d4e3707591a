// winograd_tiles.h: the transforms of the convolution by Winograd's F(2x2, 3x3), by AVX-512.
// Inside the library only.
//
// Terms:
//   tile    2 x 2 pixels of an output, and the 4 x 4 of x under them, two of which it shares
//   points  the 4 x 4 values that a tile of x and a kernel of 3 x 3 are turned into.  Their
//           products, summed over channels, are turned into a tile of the output
//
// The points of polynomials are 0, 1, -1 and infinity.  Larger tiles would multiply errors.
// Source: Lavin & Gray 2016, arXiv:1509.09308, 4.1.
#pragma once

#include <cstdint>

#include "engine/runtime/primitives/primitives.h"

namespace gyre::winograd {

inline constexpr int64_t kTile = 2, kKernel = 3, kSide = kTile + kKernel - 1;
inline constexpr int64_t kPoints = kSide * kSide, kKernelSize = kKernel * kKernel;
inline constexpr int64_t kLanes = 16;  // channels of a vector

// Rows or columns of a tile that are in the image.
struct TileInside {
  int64_t first, last;  // [first, last)
  bool operator()(int64_t i) const { return first <= i && i < last; }
};

// A tile of x, whose first pixel may be outside.  Pixels outside are 0.
struct InputTile {
  const float* pixel;
  int64_t row, channels;  // elements from row to row, and of a pixel, a multiple of kLanes
  TileInside rows, columns;
};

// A tile of y, of a vector of filters.
struct OutputTile {
  const float* bias;  // or null
  float* pixel;
  int64_t row, column;  // elements
  TileInside rows, columns;
  Activation activation;
};

// Writes the tile's points, [kPoints] arrays of all channels, `plane` elements apart.
void ToPoints(const InputTile& tile, float* points, int64_t plane);

// Reads the points of a vector of filters, `plane` elements apart.
void FromPoints(const float* points, int64_t plane, const OutputTile& tile);

// Points of a kernel [3, 3], `plane` elements apart.  On any processor.
void KernelToPoints(const float* kernel, float* points, int64_t plane);

}  // namespace gyre::winograd
