// parallel_host.h: the loop skeletons on a CPU; included by parallel.h alone.
//
// Every reduction is cut into pieces by its extents, never by the thread count; a piece has kLanes
// partial values, as wide as vector registers like, which are then combined as a tree.  The inner
// loops carry `omp simd`, because g++ -O2 vectorises no loop of unknown length otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "engine/runtime/parallel/split.h"

namespace gyre::parallel_internal {

// Loops of fewer visits run on one thread: waking a team takes microseconds, in which one core
// makes about this many light visits.
inline constexpr int64_t kGrain = 8192;
// 64 bytes of float: one AVX-512 register, four SSE ones.
inline constexpr int64_t kLanes = 16;
// Columns of a row, and rows of a column, that one piece reduces.  Large enough that partial values
// cost little beside the data, small enough that a bias gradient (few columns) has many pieces.
inline constexpr int64_t kColumnsPerPiece = 4096;
inline constexpr int64_t kRowsPerPiece = 256;
// Columns that one piece of a column reduction or scatter covers: its values stay in the L1 cache.
inline constexpr int64_t kColumnsPerBlock = 128;

// True where that many tasks, of so many visits in all, are worth a team of threads.
constexpr bool Worthwhile(int64_t tasks, int64_t visits) { return tasks > 1 && visits >= kGrain; }

template <typename F>
void HostForEach(int64_t n, F f) {
#pragma omp parallel for simd schedule(static) firstprivate(f) if (parallel : n >= kGrain)
  for (int64_t i = 0; i < n; ++i) f(i);
}

// Columns [begin, end) of one row, combined.
template <typename R>
typename R::Value CombineRow(const R& r, int64_t row, int64_t begin, int64_t end) {
  if (begin == end) return r.Identity();
  typename R::Value lanes[kLanes];
  const int64_t used = std::min(kLanes, end - begin);
  for (int64_t lane = 0; lane < used; ++lane) lanes[lane] = r.Load(row, begin + lane);
  int64_t column = begin + used;
  for (; column + kLanes <= end; column += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = r.Combine(lanes[lane], r.Load(row, column + lane));
    }
  }
  for (int64_t lane = 0; column + lane < end; ++lane) {
    lanes[lane] = r.Combine(lanes[lane], r.Load(row, column + lane));
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width && lane + width < used; ++lane) {
      lanes[lane] = r.Combine(lanes[lane], lanes[lane + width]);
    }
  }
  return lanes[0];
}

template <typename R>
void HostForEachRow(int64_t rows, int64_t columns, R r) {
  const int64_t pieces = Pieces(columns, kColumnsPerPiece);
  if (pieces <= 1) {
#pragma omp parallel for schedule(static) firstprivate(r) if (Worthwhile(rows, rows * columns))
    for (int64_t row = 0; row < rows; ++row) r.Store(row, CombineRow(r, row, 0, columns));
    return;
  }
  const auto partial = std::make_unique<typename R::Value[]>(rows * pieces);
#pragma omp parallel for collapse(2) schedule(static) firstprivate(r)
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t begin = piece * kColumnsPerPiece;
      const int64_t end = std::min(columns, begin + kColumnsPerPiece);
      partial[row * pieces + piece] = CombineRow(r, row, begin, end);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    typename R::Value value = partial[row * pieces];
    for (int64_t piece = 1; piece < pieces; ++piece) {
      value = r.Combine(value, partial[row * pieces + piece]);
    }
    r.Store(row, value);
  }
}

template <typename R>
void HostTransformRows(int64_t rows, int64_t columns, R r) {
#pragma omp parallel for schedule(static) firstprivate(r) if (Worthwhile(rows, rows * columns))
  for (int64_t row = 0; row < rows; ++row) {
    const typename R::Value value = r.Finish(CombineRow(r, row, 0, columns));
#pragma omp simd
    for (int64_t column = 0; column < columns; ++column) r.Apply(row, column, value);
  }
}

// values[j]: column begin + j over rows [first, last), combined from first to last; first < last.
template <typename R>
void CombineColumns(const R& r, int64_t first, int64_t last, int64_t begin, int64_t count,
                    typename R::Value* values) {
  for (int64_t j = 0; j < count; ++j) values[j] = r.Load(first, begin + j);
  for (int64_t row = first + 1; row < last; ++row) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) values[j] = r.Combine(values[j], r.Load(row, begin + j));
  }
}

template <typename R>
void HostReduceColumns(int64_t rows, int64_t columns, R r) {
  if (rows == 0) {
    for (int64_t column = 0; column < columns; ++column) r.Store(column, r.Identity());
    return;
  }
  const int64_t pieces = Pieces(rows, kRowsPerPiece);
  const int64_t blocks = Pieces(columns, kColumnsPerBlock);
  const auto partial = std::make_unique<typename R::Value[]>(pieces * columns);
#pragma omp parallel firstprivate(r) if (Worthwhile(pieces * blocks, rows * columns))
  {
#pragma omp for collapse(2) schedule(static)
    for (int64_t piece = 0; piece < pieces; ++piece) {
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = piece * kRowsPerPiece, begin = block * kColumnsPerBlock;
        typename R::Value values[kColumnsPerBlock];
        const int64_t count = std::min(kColumnsPerBlock, columns - begin);
        CombineColumns(r, first, std::min(rows, first + kRowsPerPiece), begin, count, values);
        std::copy(values, values + count, &partial[piece * columns + begin]);
      }
    }
#pragma omp for schedule(static)
    for (int64_t column = 0; column < columns; ++column) {
      typename R::Value value = partial[column];
      for (int64_t piece = 1; piece < pieces; ++piece) {
        value = r.Combine(value, partial[piece * columns + column]);
      }
      r.Store(column, value);
    }
  }
}

template <typename S>
void HostScatterAdd(int64_t rows, int64_t columns, S s) {
  const int64_t blocks = Pieces(columns, kColumnsPerBlock);
#pragma omp parallel for schedule(static) firstprivate(s) if (Worthwhile(blocks, rows * columns))
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = block * kColumnsPerBlock;
    const int64_t end = std::min(columns, begin + kColumnsPerBlock);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t destination = s.Destination(row);
      if (destination < 0) continue;
#pragma omp simd
      for (int64_t column = begin; column < end; ++column) s.Add(row, destination, column);
    }
  }
}

}  // namespace gyre::parallel_internal
