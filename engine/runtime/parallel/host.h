// host.h: the loop skeletons on a CPU.  Included by parallel.h alone.
//
// A reduction is split into pieces by its extents, never by thread count or instruction set.  A
// row's piece has kLanes partial values.  These, and then the pieces, are combined as a tree.  A
// sum of millions of floats therefore errs as one piece does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runtime/math.h"
#include "engine/runtime/parallel/elements.h"
#include "engine/runtime/parallel/fused_loop.h"
#include "engine/runtime/parallel/vectorised.h"

namespace gyre::parallel_internal {

// Loops of fewer visits run on one thread.  Waking a team takes microseconds, as do so many visits.
inline constexpr int64_t kGrain = 8192;
// 64 bytes of float fill one AVX-512 register or four SSE registers.
inline constexpr int64_t kLanes = 16;
// Columns of a row, and rows of a column, in one piece.  Long pieces keep partial values cheap,
// short ones give a bias gradient (few columns) many pieces.
inline constexpr int64_t kColumnsPerPiece = 4096;
inline constexpr int64_t kRowsPerPiece = 256;
// Columns of one task of a column reduction or scatter.  Their values stay in the L1 cache.
inline constexpr int64_t kColumnsPerBlock = 128;

// True if `tasks` tasks, of `visits` visits in all, are worth a team of threads.
constexpr bool Worthwhile(int64_t tasks, int64_t visits) { return tasks > 1 && visits >= kGrain; }

// Returns memory of the calling thread for `count` partial values, valid until its next call.  It
// is retained, so a repeated step allocates nothing.
template <typename Value>
Value* PartialValues(int64_t count) {
  thread_local std::vector<Value> values;
  if (values.size() < static_cast<size_t>(count)) values.resize(count);
  return values.data();
}

// kCount values of a reduction.  Values with Components are two arrays, as vectors want them.
template <typename Value, int64_t kCount>
struct Values {
  Value all[kCount];
  Value Get(int64_t i) const { return all[i]; }
  void Set(int64_t i, Value value) { all[i] = value; }
};

template <typename Value, int64_t kCount>
requires requires { typename Value::Component; }
struct Values<Value, kCount> {
  typename Value::Component first[kCount], second[kCount];
  Value Get(int64_t i) const { return {first[i], second[i]}; }
  void Set(int64_t i, Value value) {
    const auto [a, b] = value;
    first[i] = a;
    second[i] = b;
  }
};

template <typename F>
struct ForEachBody {
  F f;
  void operator()(int64_t begin, int64_t end) const {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) CallOnce(f, i);
  }
};

template <typename F>
void HostForEach(int64_t n, const F& f) {
  RunOnTeam(n, n >= kGrain, ForEachBody<F>{f});
}

template <typename F>
struct ForEachCellBody {
  F f;
  int64_t columns;
  void operator()(int64_t begin, int64_t end) const {  // cells, row by row
    if (begin == end) return;                          // there may be no columns
    int64_t row = begin / columns, first = begin - row * columns;
    for (int64_t i = begin; i < end; ++row, first = 0) {
      const int64_t last = std::min(columns, first + end - i);
#pragma omp simd
      for (int64_t column = first; column < last; ++column) CallOnce(f, row, column);
      i += last - first;
    }
  }
};

template <typename F>
void HostForEachCell(int64_t rows, int64_t columns, const F& f) {
  const int64_t n = rows * columns;
  RunOnTeam(n, n >= kGrain, ForEachCellBody<F>{f, columns});
}

// Treats the parts as one range, split among the threads.
template <typename F>
void HostForEachPart(std::span<const FusedLoop<F>> parts) {
  int64_t n = 0;
  for (const FusedLoop<F>& part : parts) n += part.n;
  const auto range = [parts](int64_t begin, int64_t end) {
    for (const FusedLoop<F>& part : parts) {
      Run(ForEachBody<F>{part.f}, std::max<int64_t>(begin, 0), std::min(end, part.n));
      begin -= part.n;
      end -= part.n;
    }
  };
  if (n < kGrain) return range(0, n);
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    range(n * thread / threads, n * (thread + 1) / threads);
  }
}

// Combines the first kCount values into values[0], as a tree.
template <int64_t kCount, typename R, int64_t kAll>
void CombineLanes(const R& r, Values<typename R::Value, kAll>& values) {
  if constexpr (kCount > 1) {
    constexpr int64_t kHalf = kCount / 2;
#pragma omp simd
    for (int64_t lane = 0; lane < kHalf; ++lane) {
      values.Set(lane, r.Combine(values.Get(lane), values.Get(lane + kHalf)));
    }
    CombineLanes<kHalf>(r, values);
  }
}

template <typename R>
typename R::Value CombineRow(const R& r, int64_t row, int64_t begin, int64_t end) {
  if (begin == end) return r.Identity();
  Values<typename R::Value, kLanes> lanes;
  const int64_t used = std::min(kLanes, end - begin);
  if (used == kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes.Set(lane, r.Load(row, begin + lane));
  } else {
    for (int64_t lane = 0; lane < used; ++lane) lanes.Set(lane, r.Load(row, begin + lane));
  }
  int64_t column = begin + used;
  for (; column + kLanes <= end; column += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes.Set(lane, r.Combine(lanes.Get(lane), r.Load(row, column + lane)));
    }
  }
  for (int64_t lane = 0; column + lane < end; ++lane) {
    lanes.Set(lane, r.Combine(lanes.Get(lane), r.Load(row, column + lane)));
  }
  if (used == kLanes) {
    CombineLanes<kLanes>(r, lanes);
    return lanes.Get(0);
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width && lane + width < used; ++lane) {
      lanes.Set(lane, r.Combine(lanes.Get(lane), lanes.Get(lane + width)));
    }
  }
  return lanes.Get(0);
}

// Returns value(0), ..., value(count - 1), combined as a tree, neighbours first.  count > 0.
template <typename R, typename ValueOf>
typename R::Value CombineAsTree(const R& r, int64_t count, const ValueOf& value) {
  constexpr int kMostLevels = 64;
  typename R::Value pending[kMostLevels];  // each of a power of two of values, the most first
  int levels = 0;
  for (int64_t i = 0; i < count; ++i) {
    pending[levels++] = value(i);
    for (int64_t whole = i; whole % 2 == 1; whole /= 2) {
      --levels;
      pending[levels - 1] = r.Combine(pending[levels - 1], pending[levels]);
    }
  }
  for (; levels > 1; --levels) {
    pending[levels - 2] = r.Combine(pending[levels - 2], pending[levels - 1]);
  }
  return pending[0];
}

template <typename R>
typename R::Value CombineWholeRow(const R& r, int64_t row, int64_t columns) {
  if (columns <= kColumnsPerPiece) return CombineRow(r, row, 0, columns);
  return CombineAsTree(r, CeilDiv(columns, kColumnsPerPiece), [&](int64_t piece) {
    const int64_t first = piece * kColumnsPerPiece;
    return CombineRow(r, row, first, std::min(columns, first + kColumnsPerPiece));
  });
}

template <typename R>
struct WholeRows {
  R r;
  int64_t columns;
  void operator()(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) r.Store(row, CombineRow(r, row, 0, columns));
  }
};

// Pieces of rows are numbered row by row.
template <typename R>
struct RowPartials {
  R r;
  int64_t columns, pieces;
  typename R::Value* partial;  // [rows, pieces]
  void operator()(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * kColumnsPerPiece;
      const int64_t last = std::min(columns, first + kColumnsPerPiece);
      partial[i] = CombineRow(r, i / pieces, first, last);
    }
  }
};

template <typename R>
void HostForEachRow(int64_t rows, int64_t columns, const R& r) {
  const int64_t pieces = CeilDiv(columns, kColumnsPerPiece);
  if (pieces <= 1) {
    return RunOnTeam(rows, Worthwhile(rows, rows * columns), WholeRows<R>{r, columns});
  }
  auto* partial = PartialValues<typename R::Value>(rows * pieces);
  RunOnTeam(rows * pieces, true, RowPartials<R>{r, columns, pieces, partial});
  for (int64_t row = 0; row < rows; ++row) {
    r.Store(row, CombineAsTree(r, pieces, [&](int64_t i) { return partial[row * pieces + i]; }));
  }
}

template <typename R>
struct TransformRowsBody {
  R r;
  int64_t columns;
  void operator()(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      const typename R::Value value = r.Finish(CombineWholeRow(r, row, columns));
#pragma omp simd
      for (int64_t column = 0; column < columns; ++column) r.Apply(row, column, value);
    }
  }
};

template <typename R>
void HostTransformRows(int64_t rows, int64_t columns, const R& r) {
  RunOnTeam(rows, Worthwhile(rows, rows * columns), TransformRowsBody<R>{r, columns});
}

// Tasks are (piece, kColumnsPerBlock columns), in order.  Each column is combined row after row.
template <typename R>
struct ColumnPartials {
  R r;
  int64_t rows, columns, blocks;
  typename R::Value* partial;  // [pieces, columns]
  void operator()(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t piece = i / blocks, column = i % blocks * kColumnsPerBlock;
      const int64_t first = piece * kRowsPerPiece, last = std::min(rows, first + kRowsPerPiece);
      const int64_t count = std::min(kColumnsPerBlock, columns - column);
      Values<typename R::Value, kColumnsPerBlock> values;
      for (int64_t j = 0; j < count; ++j) values.Set(j, r.Load(first, column + j));
      for (int64_t row = first + 1; row < last; ++row) {
#pragma omp simd
        for (int64_t j = 0; j < count; ++j) {
          values.Set(j, r.Combine(values.Get(j), r.Load(row, column + j)));
        }
      }
      for (int64_t j = 0; j < count; ++j) partial[piece * columns + column + j] = values.Get(j);
    }
  }
};

template <typename R>
struct ColumnTotals {
  R r;
  int64_t columns, pieces;
  typename R::Value* partial;  // [pieces, columns]
  void operator()(int64_t begin, int64_t end) const {
    for (int64_t step = 1; step < pieces; step *= 2) {
      for (int64_t piece = 0; piece + step < pieces; piece += 2 * step) {
        typename R::Value* const to = partial + piece * columns;
        const typename R::Value* const from = to + step * columns;
#pragma omp simd
        for (int64_t column = begin; column < end; ++column) {
          to[column] = r.Combine(to[column], from[column]);
        }
      }
    }
    for (int64_t column = begin; column < end; ++column) r.Store(column, partial[column]);
  }
};

template <typename R>
void HostReduceColumns(int64_t rows, int64_t columns, const R& r) {
  if (rows == 0) {
    for (int64_t column = 0; column < columns; ++column) r.Store(column, r.Identity());
    return;
  }
  const int64_t pieces = CeilDiv(rows, kRowsPerPiece), blocks = CeilDiv(columns, kColumnsPerBlock);
  auto* partial = PartialValues<typename R::Value>(pieces * columns);
  RunOnTeam(pieces * blocks, Worthwhile(pieces * blocks, rows * columns),
            ColumnPartials<R>{r, rows, columns, blocks, partial});
  RunOnTeam(columns, Worthwhile(columns, pieces * columns),
            ColumnTotals<R>{r, columns, pieces, partial});
}

template <typename S>
struct ScatterAddBody {
  S s;
  int64_t rows, columns;
  void operator()(int64_t begin, int64_t end) const {  // blocks of columns
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kColumnsPerBlock;
      const int64_t last = std::min(columns, first + kColumnsPerBlock);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t destination = s.Destination(row);
        if (destination < 0) continue;
#pragma omp simd
        for (int64_t column = first; column < last; ++column) s.Add(row, destination, column);
      }
    }
  }
};

template <typename S>
void HostScatterAdd(int64_t rows, int64_t columns, const S& s) {
  const int64_t blocks = CeilDiv(columns, kColumnsPerBlock);
  RunOnTeam(blocks, Worthwhile(blocks, rows * columns), ScatterAddBody<S>{s, rows, columns});
}

}  // namespace gyre::parallel_internal
