// blocked_gemm.h: the tiled matrix product under this library's Gemm and Conv2d.  Operands are
// functors that copy a slice of a row into a tile, so a convolution needs no im2col buffer.
//
// Each element of C is a sum over k in increasing order.  kSumDepth terms at a time are added in T,
// and these sums in F64.  The bits depend on neither the tiles nor the thread count.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "engine/runtime/math.h"

namespace gyre {

// Extents of the largest tile.  A tile of C is the product of strips of A and B of length
// kTileDepth.  The three take 96 KB in double, a share of an L2 cache.
inline constexpr int64_t kTileRows = 64;
inline constexpr int64_t kTileColumns = 64;
inline constexpr int64_t kTileDepth = 64;
// A float sum of this many terms keeps six digits.
inline constexpr int64_t kSumDepth = 16 * kTileDepth;

// The micro kernel keeps 4 rows x 2 vectors of C in registers.  They are 8 of the 16 of every
// x86-64, which leaves room for a row of B and an element of A.
inline constexpr int64_t kMicroRows = 4;
inline constexpr int64_t kVectorBytes = 16;
template <typename T>
inline constexpr int64_t kMicroColumns = 2 * kVectorBytes / static_cast<int64_t>(sizeof(T));

template <typename T>
struct Tiles {
  alignas(64) T a[kTileRows][kTileDepth];
  alignas(64) T b[kTileDepth][kTileColumns];
  alignas(64) T c[kTileRows][kTileColumns];
  alignas(64) double totals[kTileRows][kTileColumns];  // of longer sums

  // Adds c to the totals, or starts them with c if it is the `first`.
  void AddToTotals(int64_t rows, int64_t columns, bool first) {
    for (int64_t i = 0; i < rows; ++i) {
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) {
        totals[i][j] = (first ? 0 : totals[i][j]) + static_cast<double>(c[i][j]);
      }
    }
  }
};

// c[rows, columns] += a[rows, depth] b[depth, columns] for one micro tile, from (row, column) on.
template <typename T>
inline void MicroKernel(Tiles<T>& tiles, int64_t row, int64_t column, int64_t depth) {
  typedef T Vector __attribute__((vector_size(kVectorBytes), may_alias));
  Vector sum[kMicroRows][2];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kMicroRows; ++i) {
    const Vector* c = reinterpret_cast<const Vector*>(&tiles.c[row + i][column]);
    sum[i][0] = c[0];
    sum[i][1] = c[1];
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Vector* b = reinterpret_cast<const Vector*>(&tiles.b[k][column]);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kMicroRows; ++i) {
      const T a = tiles.a[row + i][k];
      sum[i][0] += a * b[0];
      sum[i][1] += a * b[1];
    }
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kMicroRows; ++i) {
    Vector* c = reinterpret_cast<Vector*>(&tiles.c[row + i][column]);
    c[0] = sum[i][0];
    c[1] = sum[i][1];
  }
}

// C[m, n] = A[m, k] B[k, n].
//   read_a(row, k0, count, T* to): A[row, k0 .. k0 + count)
//   read_b(k, column0, count, T* to): B[k, column0 .. column0 + count)
//   write_c(row, column0, count, const T* from): C[row, column0 .. column0 + count)
// Runs on the caller's OpenMP threads, and calls write_c once for each element.
// Cost: each element of A is read ceil(n / kTileColumns) times, each of B once a strip of rows.
template <typename T, typename ReadA, typename ReadB, typename WriteC>
void BlockedGemm(int64_t m, int64_t n, int64_t k, const ReadA& read_a, const ReadB& read_b,
                 const WriteC& write_c) {
  if (m == 0 || n == 0) return;
  // A few tiles a thread share out small matrices as well.
  const int64_t column_tiles = CeilDiv(n, kTileColumns);
  const int64_t wanted_tiles = 4 * omp_get_max_threads();
  const int64_t rows_per_tile =
      std::clamp(RoundUp(m * column_tiles / wanted_tiles, kMicroRows), kMicroRows, kTileRows);
  const int64_t row_tiles = CeilDiv(m, rows_per_tile);
#pragma omp parallel for schedule(dynamic)
  for (int64_t tile = 0; tile < row_tiles * column_tiles; ++tile) {
    Tiles<T> tiles;
    const int64_t row0 = tile / column_tiles * rows_per_tile;
    const int64_t column0 = tile % column_tiles * kTileColumns;
    const int64_t rows = std::min(rows_per_tile, m - row0);
    const int64_t columns = std::min(kTileColumns, n - column0);
    // The micro kernel works on whole micro tiles, with zeros beyond the matrix.
    const int64_t whole_rows = RoundUp(rows, kMicroRows);
    const int64_t whole_columns = RoundUp(columns, kMicroColumns<T>);
    for (int64_t i = 0; i < whole_rows; ++i) std::fill_n(tiles.c[i], whole_columns, T{0});
    for (int64_t i = rows; i < whole_rows; ++i) std::fill_n(tiles.a[i], kTileDepth, T{0});
    for (int64_t k0 = 0; k0 < k; k0 += kTileDepth) {
      if (k0 > 0 && k0 % kSumDepth == 0) {
        tiles.AddToTotals(rows, columns, k0 == kSumDepth);
        for (int64_t i = 0; i < whole_rows; ++i) std::fill_n(tiles.c[i], whole_columns, T{0});
      }
      const int64_t depth = std::min(kTileDepth, k - k0);
      for (int64_t i = 0; i < rows; ++i) read_a(row0 + i, k0, depth, tiles.a[i]);
      for (int64_t p = 0; p < depth; ++p) {
        read_b(k0 + p, column0, columns, tiles.b[p]);
        std::fill(tiles.b[p] + columns, tiles.b[p] + whole_columns, T{0});
      }
      for (int64_t j = 0; j < whole_columns; j += kMicroColumns<T>) {
        for (int64_t i = 0; i < whole_rows; i += kMicroRows) MicroKernel<T>(tiles, i, j, depth);
      }
    }
    if (k > kSumDepth) {
      tiles.AddToTotals(rows, columns, /*first=*/false);
      for (int64_t i = 0; i < rows; ++i) std::copy_n(tiles.totals[i], columns, tiles.c[i]);
    }
    for (int64_t i = 0; i < rows; ++i) write_c(row0 + i, column0, columns, tiles.c[i]);
  }
}

}  // namespace gyre
