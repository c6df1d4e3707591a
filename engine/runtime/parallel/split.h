// split.h: long reductions cut into pieces, so that a few sums over millions of elements occupy a
// whole GPU; included by parallel.h and its bodies alone.
//
// A block cannot hand a partial value to another one without memory in between, so a split
// reduction is two: over the pieces, into scratch, and then over the partial values.  How many
// pieces there are depends on the extents alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/runtime/math.h"

namespace gyre::parallel_internal {

// Partial values that are enough for a GPU: an H100 holds 132 x 8 blocks of 256 threads.
inline constexpr int64_t kWantedPartials = 1024;
// The least that a piece should hold, so that the second pass is short beside the first: 16 columns
// for each thread of a block, a warp's share of rows.
inline constexpr int64_t kLeastPieceColumns = 4096;
inline constexpr int64_t kLeastPieceRows = 256;
// ReduceColumns makes a block of every 32 columns, or fewer, without our doing.
inline constexpr int64_t kColumnsPerPartial = 32;

// Pieces of each row; at least 1.
constexpr int64_t RowSplit(int64_t rows, int64_t columns) {
  if (rows == 0) return 1;
  return std::max<int64_t>(1, std::min(kWantedPartials / rows, columns / kLeastPieceColumns));
}

// Pieces of each column; at least 1.
constexpr int64_t ColumnSplit(int64_t rows, int64_t columns) {
  if (columns == 0) return 1;
  const int64_t wanted = kWantedPartials / CeilDiv(columns, kColumnsPerPartial);
  return std::max<int64_t>(1, std::min(wanted, rows / kLeastPieceRows));
}

// First pass: the same, but for where the values of pieces go.
template <typename R>
struct IntoPartials {
  using Value = typename R::Value;
  R r;
  Value* partial;

  HOST_DEVICE Value Identity() const { return r.Identity(); }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const { return r.Load(row, column); }
  HOST_DEVICE Value Combine(Value a, Value b) const { return r.Combine(a, b); }
  HOST_DEVICE void Store(int64_t i, Value v) const { partial[i] = v; }
};

// Second pass: partial is [rows, columns].
template <typename R>
struct OfPartials {
  using Value = typename R::Value;
  R r;
  int64_t columns;
  const Value* partial;

  HOST_DEVICE Value Identity() const { return r.Identity(); }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    return partial[row * columns + column];
  }
  HOST_DEVICE Value Combine(Value a, Value b) const { return r.Combine(a, b); }
  HOST_DEVICE void Store(int64_t i, Value v) const { r.Store(i, v); }
};

}  // namespace gyre::parallel_internal
