// split.h: splits long reductions, so that a few sums over millions of elements occupy a whole GPU.
//
// Blocks exchange values through memory only, so a split reduction has two passes.  The first
// reduces each piece (block.h) into scratch, the second reduces those.  Extents alone decide their
// number.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/runtime/math.h"

namespace gyre::parallel_internal {

// Partial values that occupy a GPU.  An H100 holds 132 x 8 blocks of 256 threads.
inline constexpr int64_t kWantedPartials = 1024;
// The shortest pieces, so that the second pass is short beside the first.  A thread then reduces 16
// columns of a row, or up to 32 rows of a column.
inline constexpr int64_t kLeastPieceColumns = 4096;
inline constexpr int64_t kLeastPieceRows = 256;
// ReduceColumns makes a block of every 32 columns, or fewer, without a split.
inline constexpr int64_t kColumnsPerPartial = 32;

// Return the number of pieces of each row (column), at least 1.
constexpr int64_t RowSplit(int64_t rows, int64_t columns) {
  if (rows == 0) return 1;
  return std::max<int64_t>(1, std::min(kWantedPartials / rows, columns / kLeastPieceColumns));
}

constexpr int64_t ColumnSplit(int64_t rows, int64_t columns) {
  if (columns == 0) return 1;
  const int64_t wanted = kWantedPartials / CeilDiv(columns, kColumnsPerPartial);
  return std::max<int64_t>(1, std::min(wanted, rows / kLeastPieceRows));
}

// First pass.  The same reduction, but each piece's value is stored in `partial`.
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

// Second pass.  partial is [rows, columns].
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
