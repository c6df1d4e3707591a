// direct_ranges.h: the pieces in which `direct` sums a tensor, and measures it: whoever measures
// the same pieces of the same sums, and adds as it does, has its sum of squares to the last bit.
#pragma once

#include <span>
#include <vector>

#include "distributed/collectives/reduction.h"

namespace gyre {

// A window of pieces from each of a few ranks stays in a core's L2 cache.
inline constexpr size_t kDirectPieceBytes = 128 << 10;

inline int64_t DirectPieceElements(size_t element_bytes) {
  return static_cast<int64_t>(kDirectPieceBytes / element_bytes);
}

// All pieces of a tensor that are not empty: rank by rank, each rank's part cut from its start on.
std::vector<ElementRange> DirectRanges(int64_t elements, size_t element_bytes, int ranks);

// The tensor's sum of squares, of those of its DirectRanges (as AddAll returns them).
double AddDirectRanges(int64_t elements, size_t element_bytes, int ranks,
                       std::span<const double> squares);

}  // namespace gyre
