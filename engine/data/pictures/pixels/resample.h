// resample.h: a picture whose pixels are weighted sums of another's, along one axis after the
// other.  Pure functions.  Any thread.
#pragma once

#include <cstdint>

#include "engine/data/pictures/pixels/axis_weights.h"

namespace gyre {

// Pixels of a picture or of a mask, which belong to the caller.  Row-major, no gaps.
struct Pixels {
  int64_t height = 0, width = 0;
  int channels = 1;
  const uint8_t* data = nullptr;
};

// Writes the sums `across` each row of `from` and then `down` each column, both rounded, to `to`,
// [down.results(), across.results(), channels].  Channels do not mix.  Rows are summed as results
// need them, so that memory is some rows of results.
// `to` may be from.data if the size stays and each result is a sum that includes its own pixel.
// Preconditions: there are results, and weights are of pixels in `from`.
void Resample(const Pixels& from, const AxisWeights& across, const AxisWeights& down, uint8_t* to);

}  // namespace gyre
