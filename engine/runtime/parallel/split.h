// parallel_split.h: long reductions cut into pieces, so that a few sums over millions of elements
// occupy a whole GPU; included by parallel.h and its bodies alone.
//
// A block cannot hand a partial value to another one without memory in between, so a split
// reduction is two: over the pieces, into scratch, and then over the partial values.  How many
// pieces there are depends on the extents alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/runtime/host_device.h"

namespace gyre::parallel_internal {

// Partial values that are enough for a GPU: an H100 holds 132 x 8 blocks of 256 threads.
inline constexpr int64_t kWantedPartials = 1024;
// The least that a piece should hold, so that the second pass is short beside the first: 16 columns
// for each thread of a block, a warp's share of rows.
inline constexpr int64_t kLeastPieceColumns = 4096;
inline constexpr int64_t kLeastPieceRows = 256;
// ReduceColumns makes a block of every 8 to 32 columns without our doing.
inline constexpr int64_t kColumnsPerPartial = 8;

HOST_DEVICE constexpr int64_t Pieces(int64_t extent, int64_t size) {
  return (extent + size - 1) / size;
}

// Pieces of each row; at least 1.
constexpr int64_t RowSplit(int64_t rows, int64_t columns) {
  if (rows == 0) return 1;
  return std::max<int64_t>(1, std::min(kWantedPartials / rows, columns / kLeastPieceColumns));
}

// Pieces of each column; at least 1.
constexpr int64_t ColumnSplit(int64_t rows, int64_t columns) {
  if (columns == 0) return 1;
  const int64_t wanted = kWantedPartials / Pieces(columns, kColumnsPerPartial);
  return std::max<int64_t>(1, std::min(wanted, rows / kLeastPieceRows));
}

// First pass by rows: piece p of row r is row r * pieces + p of [rows * pieces, piece_columns].
template <typename R>
struct RowPieces {
  using Value = typename R::Value;
  R r;
  int64_t columns, pieces, piece_columns;
  Value* partial;  // [rows, pieces]

  HOST_DEVICE Value Identity() const { return r.Identity(); }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    const int64_t whole = row % pieces * piece_columns + column;
    return whole < columns ? r.Load(row / pieces, whole) : r.Identity();
  }
  HOST_DEVICE Value Combine(Value a, Value b) const { return r.Combine(a, b); }
  HOST_DEVICE void Store(int64_t i, Value v) const { partial[i] = v; }
};

// First pass by columns: piece p of column c is column p * columns + c of
// [piece_rows, pieces * columns], so that neighbours stay neighbours.
template <typename R>
struct ColumnPieces {
  using Value = typename R::Value;
  R r;
  int64_t rows, columns, piece_rows;
  Value* partial;  // [pieces, columns]

  HOST_DEVICE Value Identity() const { return r.Identity(); }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    const int64_t whole = column / columns * piece_rows + row;
    return whole < rows ? r.Load(whole, column % columns) : r.Identity();
  }
  HOST_DEVICE Value Combine(Value a, Value b) const { return r.Combine(a, b); }
  HOST_DEVICE void Store(int64_t i, Value v) const { partial[i] = v; }
};

// Second pass of both: partial is [rows, columns].
template <typename R>
struct Partials {
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
