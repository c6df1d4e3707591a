// block.h: the work of one GPU block in each skeleton, for any type that acts as kThreads threads.
// cuda.h passes a real block.  A test passes a loop, and so runs the GPU's code on a CPU.
//
// A block B has
//   int64_t index() const, count() const;  // this block's number, and how many there are
//   void Phase(f);                         // f(thread) on every thread, then a barrier
//   void WarpPhase(f);                     // the same, but the barrier is of each kWarp neighbours
//   bool Any(f);                           // as Phase, and true if f was true on any thread
// From phase to phase only `values` and `flags` survive, [kThreads] in shared memory, and variables
// that are equal on all threads.  All threads must reach a Phase, WarpPhase or Any, or its barrier
// deadlocks. Within a phase no thread touches an element that another writes.  Extents alone decide
// how values combine.  There are no warp shuffles, because the loop of a test has no warps.
//
// Terms:
//   piece  a range of one row's columns (one column's rows) that is reduced to one value
//   lanes  threads that share a row (RowLanes), or neighbouring columns (ColumnLanes), not a warp's
#pragma once

#include <cstdint>

#include "engine/runtime/host_device.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/fused_loop.h"

namespace gyre::parallel_internal {

inline constexpr int kThreads = 256;
// Threads that wait for each other for nothing.  A block's barrier takes them as long as a load.
inline constexpr int kWarp = 32;
// The longest rows that a warp reduces.  A thread then has 8 columns.
inline constexpr int64_t kWarpColumns = 8 * kWarp;
// Columns of a destination that one block adds to.  A thread's four share one search for rows.
inline constexpr int64_t kScatterColumns = 4 * kThreads;
// Elements of a part that one block visits at a time.
inline constexpr int64_t kPartElements = 4 * kThreads;
// Loads that a thread of a reduction starts before it needs the first.  They hide the latency of
// memory at an occupancy of 50 %.
inline constexpr int kLoadsInFlight = 4;

// Threads that share a row, a power of two: of a warp, or, where rows are longer, of the block.
HOST_DEVICE constexpr int RowLanes(int64_t columns) {
  const int most = columns <= kWarpColumns ? kWarp : kThreads;
  int lanes = 1;
  while (lanes < most && 2 * lanes < columns) lanes *= 2;
  return lanes;
}

// Neighbouring columns that a block reduces, a power of two.  Its other threads take rows in turn.
// Memory is read in units of 32 bytes, which are 8 columns of float.  The width doubles, up to 32,
// while there are more than 128 blocks (an H100 SXM has 132 SMs).  The last doubling may leave half
// as many.
HOST_DEVICE constexpr int ColumnLanes(int64_t columns, int64_t pieces) {
  int lanes = 1;
  while (lanes < 8 && lanes < columns) lanes *= 2;
  while (lanes < 32 && lanes < columns && 128 * lanes < columns * pieces) lanes *= 2;
  return lanes;
}

// Returns Combine over load(i) for i = begin, begin + step, ... below end.
template <typename R, typename Load>
HOST_DEVICE typename R::Value CombineStrided(const R& r, int64_t begin, int64_t end, int64_t step,
                                             Load load) {
  typename R::Value values[kLoadsInFlight], loaded[kLoadsInFlight];
  for (int k = 0; k < kLoadsInFlight; ++k) values[k] = r.Identity();
  int64_t i = begin;
  for (; i + (kLoadsInFlight - 1) * step < end; i += kLoadsInFlight * step) {
    for (int k = 0; k < kLoadsInFlight; ++k) loaded[k] = load(i + k * step);
    for (int k = 0; k < kLoadsInFlight; ++k) values[k] = r.Combine(values[k], loaded[k]);
  }
  for (; i < end; i += step) values[0] = r.Combine(values[0], load(i));
  for (int k = 1; k < kLoadsInFlight; ++k) values[0] = r.Combine(values[0], values[k]);
  return values[0];
}

// A phase after which only threads that share a row need each other's values.
template <typename B, typename F>
HOST_DEVICE void RowPhase(B& block, int lanes, F f) {
  if (lanes <= kWarp) {
    block.WarpPhase(f);
  } else {
    block.Phase(f);
  }
}

// Sets values[g * lanes] to piece first + g, reduced.  Pieces are numbered row by row.
template <typename B, typename R>
HOST_DEVICE void CombineRows(B& block, const R& r, int64_t rows, int64_t columns, int64_t pieces,
                             int64_t first, typename R::Value* values) {
  const int64_t size = CeilDiv(columns, pieces);
  const int lanes = RowLanes(size);
  RowPhase(block, lanes, [&](int thread) {
    const int64_t i = first + thread / lanes, row = i / pieces, begin = i % pieces * size;
    const int64_t end = begin + size < columns ? begin + size : columns;
    values[thread] = row < rows
                         ? CombineStrided(r, begin + thread % lanes, end, lanes,
                                          [&](int64_t column) { return r.Load(row, column); })
                         : r.Identity();
  });
  for (int width = lanes / 2; width > 0; width /= 2) {
    RowPhase(block, lanes, [&](int thread) {
      if (thread % lanes < width) {
        values[thread] = r.Combine(values[thread], values[thread + width]);
      }
    });
  }
}

// Calls Store(row * pieces + piece, the piece's value).
template <typename B, typename R>
HOST_DEVICE void ForEachRowBlock(B& block, int64_t rows, int64_t columns, int64_t pieces,
                                 const R& r, typename R::Value* values) {
  const int lanes = RowLanes(CeilDiv(columns, pieces)), block_pieces = kThreads / lanes;
  for (int64_t first = block.index() * block_pieces; first < rows * pieces;
       first += block.count() * block_pieces) {
    CombineRows(block, r, rows, columns, pieces, first, values);
    RowPhase(block, lanes, [&](int thread) {
      const int64_t i = first + thread / lanes;
      if (thread % lanes == 0 && i < rows * pieces) r.Store(i, values[thread]);
    });
  }
}

template <typename B, typename R>
HOST_DEVICE void TransformRowsBlock(B& block, int64_t rows, int64_t columns, const R& r,
                                    typename R::Value* values) {
  const int lanes = RowLanes(columns), block_rows = kThreads / lanes;
  for (int64_t first = block.index() * block_rows; first < rows;
       first += block.count() * block_rows) {
    CombineRows(block, r, rows, columns, /*pieces=*/1, first, values);
    RowPhase(block, lanes, [&](int thread) {
      if (thread % lanes == 0) values[thread] = r.Finish(values[thread]);
    });
    RowPhase(block, lanes, [&](int thread) {
      const int64_t row = first + thread / lanes;
      if (row >= rows) return;
      const typename R::Value value = values[thread / lanes * lanes];
      for (int64_t column = thread % lanes; column < columns; column += lanes) {
        r.Apply(row, column, value);
      }
    });
  }
}

// Calls Store(piece * columns + column, the value over the piece's rows).
template <typename B, typename R>
HOST_DEVICE void ReduceColumnsBlock(B& block, int64_t rows, int64_t columns, int64_t pieces,
                                    const R& r, typename R::Value* values) {
  const int lanes = ColumnLanes(columns, pieces), row_lanes = kThreads / lanes;
  const int64_t groups = CeilDiv<int64_t>(columns, lanes), size = CeilDiv(rows, pieces);
  for (int64_t task = block.index(); task < pieces * groups; task += block.count()) {
    const int64_t piece = task / groups, first = task % groups * lanes;
    const int64_t begin = piece * size, end = begin + size < rows ? begin + size : rows;
    block.Phase([&](int thread) {
      const int64_t column = first + thread % lanes;
      values[thread] = column < columns
                           ? CombineStrided(r, begin + thread / lanes, end, row_lanes,
                                            [&](int64_t row) { return r.Load(row, column); })
                           : r.Identity();
    });
    for (int width = row_lanes / 2; width > 0; width /= 2) {
      block.Phase([&](int thread) {
        if (thread / lanes < width) {
          values[thread] = r.Combine(values[thread], values[thread + width * lanes]);
        }
      });
    }
    block.Phase([&](int thread) {
      const int64_t column = first + thread % lanes;
      if (thread < lanes && column < columns) r.Store(piece * columns + column, values[thread]);
    });
  }
}

// Blocks take kPartElements of the parts in turn.
template <typename B, typename F>
HOST_DEVICE void ForEachPartBlock(B& block, const PartTable<F>& table) {
  int64_t chunk = block.index();  // of kPartElements, counted from part k's first
  for (int k = 0; k < table.count; ++k) {
    const int64_t n = table.parts[k].n, chunks = CeilDiv(n, kPartElements);
    for (; chunk < chunks; chunk += block.count()) {
      const int64_t begin = chunk * kPartElements;
      const int64_t end = begin + kPartElements < n ? begin + kPartElements : n;
      block.Phase([&](int thread) {
        for (int64_t i = begin + thread; i < end; i += kThreads) table.parts[k].f(i);
      });
    }
    chunk -= chunks;
  }
}

// The block of the first row with a destination adds all rows that share it, in their order.  No
// other block adds to the same columns.  Cost: each row reads destinations from row 0 to the first
// that equals its own, and the first row of each destination reads all.
template <typename B, typename S>
HOST_DEVICE void ScatterAddBlock(B& block, int64_t rows, int64_t columns, const S& s,
                                 unsigned char* flags) {
  const int64_t column_blocks = CeilDiv(columns, kScatterColumns);
  for (int64_t task = block.index(); task < rows * column_blocks; task += block.count()) {
    const int64_t row = task / column_blocks;
    const int64_t begin = task % column_blocks * kScatterColumns;
    const int64_t end = begin + kScatterColumns < columns ? begin + kScatterColumns : columns;
    const int64_t destination = s.Destination(row);
    if (destination < 0) continue;

    bool is_first = true;
    for (int64_t from = 0; from < row && is_first; from += kThreads) {
      is_first = !block.Any([&](int thread) {
        return from + thread < row && s.Destination(from + thread) == destination;
      });
    }
    if (!is_first) continue;

    for (int64_t from = row; from < rows; from += kThreads) {
      const bool any = block.Any([&](int thread) {
        const bool same = from + thread < rows && s.Destination(from + thread) == destination;
        flags[thread] = same;
        return same;
      });
      if (!any) continue;
      block.Phase([&](int thread) {
        for (int64_t column = begin + thread; column < end; column += kThreads) {
          for (int i = 0; i < kThreads; ++i) {
            if (flags[i] != 0) s.Add(from + i, destination, column);
          }
        }
      });
    }
  }
}

}  // namespace gyre::parallel_internal
