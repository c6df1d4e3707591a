// parallel_block.h: what one block of a GPU does in a reduction or scatter, for anything that acts
// as a block of kThreads threads: parallel_cuda.h hands over a real one, and a test one that is a
// loop, so that the text that runs on a GPU has been run.
//
// A block B has
//   int64_t index() const, count() const;  // this one's, and how many there are
//   void Phase(f);                         // f(thread) on every thread; then all wait for all
//   bool Any(f);                           // the same; true if f was on one of them
// A thread keeps nothing from phase to phase but what it wrote to `values` or `flags`, [kThreads]
// in the block's shared memory, and in one phase touches nothing that another thread writes.
// Which values are combined in which order depends on the extents alone.
#pragma once

#include <cstdint>

#include "engine/runtime/host_device.h"
#include "engine/runtime/parallel/split.h"

namespace gyre::parallel_internal {

inline constexpr int kThreads = 256;
// Columns of a destination that one block adds to: four a thread, so that the search for its rows
// is shared.
inline constexpr int64_t kScatterColumns = 4 * kThreads;

// Threads that share a row, a power of two: each has at least two columns if it can.
HOST_DEVICE constexpr int RowLanes(int64_t columns) {
  int lanes = 1;
  while (lanes < kThreads && 2 * lanes < columns) lanes *= 2;
  return lanes;
}

// Neighbouring columns that a block reduces, a power of two; its threads beside them take rows in
// turn.  8 columns of float are the 32 bytes that memory is read by; more of them only where the
// columns make a block for each of an H100's 132 processors all the same.
HOST_DEVICE constexpr int ColumnLanes(int64_t columns) {
  int lanes = 1;
  while (lanes < 8 && lanes < columns) lanes *= 2;
  while (lanes < 32 && 128 * lanes < columns) lanes *= 2;
  return lanes;
}

// values[first] = Combine over its `members` values, `stride` apart, for each group of threads;
// member(thread): which one of its group a thread is.
template <typename B, typename R, typename Member>
HOST_DEVICE void CombineTree(B& block, const R& r, int members, int stride, Member member,
                             typename R::Value* values) {
  for (int width = members / 2; width > 0; width /= 2) {
    block.Phase([&](int thread) {
      if (member(thread) < width) {
        values[thread] = r.Combine(values[thread], values[thread + width * stride]);
      }
    });
  }
}

// values[g * lanes] = Combine over the columns of row first + g, for each of the block's rows.
template <typename B, typename R>
HOST_DEVICE void CombineRows(B& block, const R& r, int64_t rows, int64_t columns, int64_t first,
                             typename R::Value* values) {
  const int lanes = RowLanes(columns);
  block.Phase([&](int thread) {
    const int64_t row = first + thread / lanes;
    typename R::Value value = r.Identity();
    if (row < rows) {
      for (int64_t column = thread % lanes; column < columns; column += lanes) {
        value = r.Combine(value, r.Load(row, column));
      }
    }
    values[thread] = value;
  });
  CombineTree(
      block, r, lanes, 1, [lanes](int thread) { return thread % lanes; }, values);
}

template <typename B, typename R>
HOST_DEVICE void ForEachRowBlock(B& block, int64_t rows, int64_t columns, const R& r,
                                 typename R::Value* values) {
  const int lanes = RowLanes(columns), block_rows = kThreads / lanes;
  for (int64_t first = block.index() * block_rows; first < rows;
       first += block.count() * block_rows) {
    CombineRows(block, r, rows, columns, first, values);
    block.Phase([&](int thread) {
      const int64_t row = first + thread / lanes;
      if (thread % lanes == 0 && row < rows) r.Store(row, values[thread]);
    });
  }
}

template <typename B, typename R>
HOST_DEVICE void TransformRowsBlock(B& block, int64_t rows, int64_t columns, const R& r,
                                    typename R::Value* values) {
  const int lanes = RowLanes(columns), block_rows = kThreads / lanes;
  for (int64_t first = block.index() * block_rows; first < rows;
       first += block.count() * block_rows) {
    CombineRows(block, r, rows, columns, first, values);
    block.Phase([&](int thread) {
      if (thread % lanes == 0) values[thread] = r.Finish(values[thread]);
    });
    block.Phase([&](int thread) {
      const int64_t row = first + thread / lanes;
      if (row >= rows) return;
      const typename R::Value value = values[thread / lanes * lanes];
      for (int64_t column = thread % lanes; column < columns; column += lanes) {
        r.Apply(row, column, value);
      }
    });
  }
}

template <typename B, typename R>
HOST_DEVICE void ReduceColumnsBlock(B& block, int64_t rows, int64_t columns, const R& r,
                                    typename R::Value* values) {
  const int lanes = ColumnLanes(columns), row_lanes = kThreads / lanes;
  for (int64_t first = block.index() * lanes; first < columns; first += block.count() * lanes) {
    block.Phase([&](int thread) {
      const int64_t column = first + thread % lanes;
      typename R::Value value = r.Identity();
      if (column < columns) {
        for (int64_t row = thread / lanes; row < rows; row += row_lanes) {
          value = r.Combine(value, r.Load(row, column));
        }
      }
      values[thread] = value;
    });
    CombineTree(
        block, r, row_lanes, lanes, [lanes](int thread) { return thread / lanes; }, values);
    block.Phase([&](int thread) {
      const int64_t column = first + thread % lanes;
      if (thread < lanes && column < columns) r.Store(column, values[thread]);
    });
  }
}

// The block of the first row with a destination adds all rows that have it, in their order: no
// other block touches that destination.  Cost: each row reads destinations back to the first row
// that shares its own, and the first one of each destination reads all after it.
template <typename B, typename S>
HOST_DEVICE void ScatterAddBlock(B& block, int64_t rows, int64_t columns, const S& s,
                                 unsigned char* flags) {
  const int64_t column_blocks = Pieces(columns, kScatterColumns);
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
