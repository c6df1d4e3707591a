// A tile of c stays in registers: 8 rows of 3 vectors are 24 of 32, and a product needs 3 vectors
// of b and one element of a.  One row of 12 vectors takes 4 strips of b side by side, so that the
// cache which b comes from waits less often for a loop to end.  Along k, where an element of c is a
// vector of partial sums, a tile is 8 x 2.
#include "engine/runtime/primitives/blocked/products.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/runtime/check.h"
#include "engine/runtime/math.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gyre {

#if defined(__x86_64__)
namespace {

constexpr int64_t kLanes = 16;
constexpr int kMostVectors = kProductColumns / kLanes;
constexpr int kMostDots = 2;  // columns of a tile along k

// The lanes that are used of the last of the vectors that hold n elements.
__mmask16 LastLanes(int64_t n) {
  return static_cast<__mmask16>(0xFFFF >> (RoundUp(n, kLanes) - n));
}

[[gnu::target("avx512f"), gnu::always_inline]] inline __m512 Load(const float* from, bool is_last,
                                                                  __mmask16 last) {
  return is_last ? _mm512_maskz_loadu_ps(last, from) : _mm512_loadu_ps(from);
}

// The intrinsic for it makes g++ 12 warn.
[[gnu::target("avx512f"), gnu::always_inline]] inline float AddLanes(__m512 v) {
  const __m256 eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m128 four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                      __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Where a tile begins, and its columns.  Apart from the products, of which a copy would have to
// wait until what was just stored in them has left the processor.
struct ProductTile {
  const float* a;
  const float* b;
  const float* start;  // or null
  float* c;
  int64_t columns;
};

// tile.columns fill kVectors.
template <int kRows, int kVectors>
[[gnu::target("avx512f")]] void ColumnsTile(const Products& p, const ProductTile& tile) {
  const __mmask16 last = LastLanes(tile.columns);
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 12
    for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_setzero_ps();
  }
  for (int64_t o = 0; o < p.outer; ++o) {
    const float* a = tile.a + o * p.a_outer;
    const float* b = tile.b + o * p.b_outer;
    for (int64_t k = 0; k < p.inner; ++k) {
      __m512 row[kVectors];
#pragma GCC unroll 12
      for (int v = 0; v < kVectors; ++v) {
        const float* const from = b + v / kMostVectors * p.b_strip + v % kMostVectors * kLanes;
        row[v] = Load(from, v + 1 == kVectors, last);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const __m512 element = _mm512_set1_ps(a[i * p.a_row]);
#pragma GCC unroll 12
        for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm512_fmadd_ps(element, row[v], sum[i][v]);
      }
      a += p.a_inner;
      b += p.b_inner;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 12
    for (int v = 0; v < kVectors; ++v) {
      if (tile.start != nullptr) {
        const float* start = tile.start + i * p.start_row + v * kLanes;
        sum[i][v] = _mm512_add_ps(Load(start, v + 1 == kVectors, last), sum[i][v]);
      }
      float* const to = tile.c + i * p.c_row + v * kLanes;
      if (p.streams) {
        _mm512_stream_ps(to, sum[i][v]);
      } else {
        _mm512_mask_storeu_ps(to, v + 1 < kVectors ? 0xFFFF : last, sum[i][v]);
      }
    }
  }
}

// a[0] times a row of b, which has a stride from strip to strip.
template <int kVectors>
[[gnu::target("avx512f"), gnu::always_inline]] inline void AddToRow(const float* a, const float* b,
                                                                    int64_t strip, __mmask16 last,
                                                                    __m512 (&sum)[kVectors]) {
  const __m512 element = _mm512_set1_ps(*a);
#pragma GCC unroll 12
  for (int v = 0; v < kVectors; ++v) {
    const float* const from = b + v / kMostVectors * strip + v % kMostVectors * kLanes;
    sum[v] = _mm512_fmadd_ps(element, Load(from, v + 1 == kVectors, last), sum[v]);
  }
}

// A column of a times a row of b.
[[gnu::target("avx512f"), gnu::always_inline]] inline void AddToRows(const float* a, int64_t a_row,
                                                                     const float* b, __mmask16 last,
                                                                     __m512 (&sum)[kRowsBeside]) {
  const __m512 columns = _mm512_maskz_loadu_ps(last, b);
#pragma GCC unroll 12
  for (int i = 0; i < kRowsBeside; ++i) {
    sum[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[i * a_row]), columns, sum[i]);
  }
}

// row.columns fill kVectors.  24 vectors of sums stay in registers.
template <int kVectors>
[[gnu::target("avx512f")]] void BesideTile(const Products& row, const ProductsBeside& other) {
  const __mmask16 last = LastLanes(row.columns), other_last = LastLanes(other.columns);
  __m512 sum[kVectors], others[kRowsBeside];
#pragma GCC unroll 12
  for (int v = 0; v < kVectors; ++v) sum[v] = _mm512_setzero_ps();
#pragma GCC unroll 12
  for (int i = 0; i < kRowsBeside; ++i) others[i] = _mm512_setzero_ps();
  const float *a = row.a, *b = row.b, *other_a = other.a, *other_b = other.b;
  const int64_t both = std::min(row.inner, other.inner);
  for (int64_t k = 0; k < both; ++k) {
    AddToRow(a++, b, row.b_strip, last, sum);
    AddToRows(other_a++, other.inner, other_b, other_last, others);
    b += kProductColumns;
    other_b += kProductColumns;
  }
  for (int64_t k = both; k < row.inner; ++k, b += kProductColumns) {
    AddToRow(a++, b, row.b_strip, last, sum);
  }
  for (int64_t k = both; k < other.inner; ++k, other_b += kProductColumns) {
    AddToRows(other_a++, other.inner, other_b, other_last, others);
  }
#pragma GCC unroll 12
  for (int v = 0; v < kVectors; ++v) {
    _mm512_mask_storeu_ps(row.c + v * kLanes, v + 1 < kVectors ? 0xFFFF : last, sum[v]);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRowsBeside; ++i) {
    _mm512_mask_storeu_ps(other.c + i * other.c_row, other_last, others[i]);
  }
}

// tile.columns are kColumns.
template <int kRows, int kColumns>
[[gnu::target("avx512f")]] void InnerTile(const Products& p, const ProductTile& tile) {
  __m512 sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumns; ++j) sum[i][j] = _mm512_setzero_ps();
  }
  for (int64_t o = 0; o < p.outer; ++o) {
    for (int64_t k = 0; k < p.inner; k += kLanes) {
      const __mmask16 lanes = LastLanes(std::min(p.inner - k, kLanes));
      const float* a = tile.a + o * p.a_outer + k;
      const float* b = tile.b + o * p.b_outer + k;
      __m512 column[kColumns];
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; ++j) {
        column[j] = _mm512_maskz_loadu_ps(lanes, b + j * p.b_column);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const __m512 row = _mm512_maskz_loadu_ps(lanes, a + i * p.a_row);
#pragma GCC unroll 2
        for (int j = 0; j < kColumns; ++j) sum[i][j] = _mm512_fmadd_ps(row, column[j], sum[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumns; ++j) {
      const float start = tile.start == nullptr ? 0 : tile.start[i * p.start_row + j];
      tile.c[i * p.c_row + j] = start + AddLanes(sum[i][j]);
    }
  }
}

using Multiply = void (*)(const Products&, const ProductTile&);

// Of each number of rows and of vectors or columns, from 1 on.
template <size_t... kIndex>
constexpr auto ColumnsTiles(std::index_sequence<kIndex...>) {
  return std::array<Multiply, sizeof...(kIndex)>{
      ColumnsTile<kIndex / kMostVectors + 1, kIndex % kMostVectors + 1>...};
}
template <size_t... kIndex>
constexpr auto RowTiles(std::index_sequence<kIndex...>) {
  return std::array<Multiply, sizeof...(kIndex)>{ColumnsTile<1, kIndex + 1>...};
}
template <size_t... kIndex>
constexpr auto BesideTiles(std::index_sequence<kIndex...>) {
  return std::array{BesideTile<kIndex + 1>...};
}
template <size_t... kIndex>
constexpr auto InnerTiles(std::index_sequence<kIndex...>) {
  return std::array<Multiply, sizeof...(kIndex)>{
      InnerTile<kIndex / kMostDots + 1, kIndex % kMostDots + 1>...};
}

// Cut into tiles of kProductRows by `columns`, of(rows, columns)(p, tile) each.  b_step: from one
// tile's columns of b to the next one's.
template <typename Of>
void ForEachTile(const Products& p, int64_t columns, int64_t b_step, const Of& of) {
  for (int64_t column = 0; column < p.columns; column += columns) {
    for (int64_t row = 0; row < p.rows; row += kProductRows) {
      const ProductTile tile{p.a + row * p.a_row, p.b + column / columns * b_step,
                             p.start == nullptr ? nullptr : p.start + row * p.start_row + column,
                             p.c + row * p.c_row + column, std::min(columns, p.columns - column)};
      of(std::min(kProductRows, p.rows - row), tile.columns)(p, tile);
    }
  }
}

}  // namespace

void MultiplyAlongColumns(const Products& products) {
  static constexpr auto kTiles =
      ColumnsTiles(std::make_index_sequence<kProductRows * kMostVectors>());
  static constexpr auto kOfRow = RowTiles(std::make_index_sequence<kRowStrips * kMostVectors>());
  if (products.rows == 1) {
    ForEachTile(products, kRowStrips * kProductColumns, kRowStrips * products.b_strip,
                [](int64_t, int64_t columns) { return kOfRow[CeilDiv(columns, kLanes) - 1]; });
  } else {
    ForEachTile(products, kProductColumns, products.b_strip, [](int64_t rows, int64_t columns) {
      return kTiles[(rows - 1) * kMostVectors + CeilDiv(columns, kLanes) - 1];
    });
  }
  if (products.streams) _mm_sfence();  // before another thread is told that it is there
}

void MultiplyRowBeside(const Products& row, const ProductsBeside& other) {
  static constexpr auto kTiles = BesideTiles(std::make_index_sequence<kRowStrips * kMostVectors>());
  kTiles[CeilDiv(row.columns, kLanes) - 1](row, other);
}

void MultiplyAlongInner(const Products& products) {
  static constexpr auto kTiles = InnerTiles(std::make_index_sequence<kProductRows * kMostDots>());
  ForEachTile(
      products, kMostDots, kMostDots * products.b_column,
      [](int64_t rows, int64_t columns) { return kTiles[(rows - 1) * kMostDots + columns - 1]; });
}

#else

void MultiplyAlongColumns(const Products&) { GYRE_CHECK(false); }
void MultiplyRowBeside(const Products&, const ProductsBeside&) { GYRE_CHECK(false); }
void MultiplyAlongInner(const Products&) { GYRE_CHECK(false); }

#endif

}  // namespace gyre
