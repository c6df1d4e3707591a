// direct_ranges.h: the segments in which `direct` measures a tensor.  A caller that measures them
// in the same order gets its sum of squares to the last bit.
#pragma once

#include <span>
#include <vector>

#include "distributed/collectives/reduction.h"

namespace gyre {

// A window of segments from each of a few ranks stays in a core's L2 cache.
inline constexpr size_t kDirectSegmentBytes = 128 << 10;

inline int64_t DirectSegmentElements(size_t element_bytes) {
  return static_cast<int64_t>(kDirectSegmentBytes / element_bytes);
}

// All segments of a tensor that are not empty.  Slices are cut in the order of ranks.
std::vector<ElementRange> DirectRanges(int64_t elements, size_t element_bytes, int ranks);

// Returns the tensor's sum of squares.  `squares` has the result of AddAll for each DirectRanges.
double AddDirectRanges(int64_t elements, size_t element_bytes, int ranks,
                       std::span<const double> squares);

}  // namespace gyre
