// weighted_sums.h: sums of a picture's bytes along one axis, the inner loops of `Resize`.
//
// Loops are vectorised over bytes that do not depend on each other.  Down the columns those are the
// bytes of a row.  Along the rows they are kLanes rows, so the rows are transposed before and
// after.
#pragma once

#include <cstdint>

#include "engine/data/pictures/pixels/axis_weights.h"

namespace gyre {

// Rows that are summed along together, and bytes of a row that are summed down together.
inline constexpr int64_t kLanes = 32;

// Memory of SumAlongRows, which grows as needed.
struct RowScratch {
  std::vector<uint8_t> columns, sums;
};

// Resizes `rows` rows, at most kLanes, along the horizontal axis.  A row of `from` has the pixels
// of `axis` and begins `from_stride` bytes after the one before.  Writes a row of axis.results()
// pixels every `to_stride` bytes, and up to kLanes - 1 bytes of no meaning after each.
void SumAlongRows(const AxisWeights& axis, int channels, const uint8_t* from, int64_t from_stride,
                  int64_t rows, RowScratch& scratch, uint8_t* to, int64_t to_stride);

// Writes the sum of `count` rows of `bytes` bytes, one every `stride` bytes, to `to`.  Reads up to
// kLanes - 1 bytes after each.
void SumDownColumns(const int32_t* weights, int64_t count, const uint8_t* rows, int64_t stride,
                    int64_t bytes, uint8_t* to);

}  // namespace gyre
