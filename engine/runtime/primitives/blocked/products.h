// products.h: small products of slices of arrays, by AVX-512.  Inside the library only.
#pragma once

#include <cstdint>

namespace gyre {

inline constexpr int64_t kProductRows = 8, kProductColumns = 48;  // of a tile

// c[i][j] = start[i][j] + the sum over o < outer and k < inner of a[i][o][k] * b[o][k][j].  It is
// assigned for i < rows and j < columns.  start_row may be 0, c_row not.
struct Products {
  int64_t rows = 0, columns = 0, outer = 1, inner = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_outer = 0, a_inner = 1;  // strides
  const float* b = nullptr;
  int64_t b_outer = 0, b_inner = 1, b_column = 1;
  int64_t b_strip = kProductColumns;  // from the columns of one tile to the next one's
  const float* start = nullptr;       // null: zeros
  int64_t start_row = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool streams = false;  // c, whose rows are whole lines of 64 bytes, is written past the caches
};

// Rows of another product that MultiplyRowBeside computes: kRowsBeside of them, at most a vector of
// columns.  Strips of b are as in Products, with a stride of kProductColumns along inner.
inline constexpr int64_t kRowsBeside = 12, kColumnsBeside = 16;
struct ProductsBeside {
  int64_t columns = 0, inner = 0;
  const float* a = nullptr;  // [kRowsBeside, inner]
  const float* b = nullptr;
  float* c = nullptr;
  int64_t c_row = 0;
};

// All run on the calling thread, by fused multiply-adds, and touch nothing beyond their operands.
// outer and inner alone decide the order of sums.  Precondition: AVX-512.
//
// Along the columns, which should be many.  Ignores b_column, which is 1.
void MultiplyAlongColumns(const Products& products);
// One row along its columns, of at most kRowStrips strips, and the other product in the same loop.
// Preconditions: outer is 1, start is null, b_inner is kProductColumns, a_inner is 1.
inline constexpr int64_t kRowStrips = 4;
void MultiplyRowBeside(const Products& row, const ProductsBeside& other);
// Along k, for few columns and many k.  Ignores b_strip.  Preconditions: a_inner and b_inner are 1,
// and c is not streamed.
void MultiplyAlongInner(const Products& products);

}  // namespace gyre
