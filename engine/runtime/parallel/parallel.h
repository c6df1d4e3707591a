// parallel.h: the loop skeletons of Gyre's own kernels.
//
// A functor is a named, trivially copyable struct of values and pointers.  Every method that a
// skeleton calls is const and HOST_DEVICE.  A call with a Stream copies its functor and enqueues.
// Memory behind the pointers must outlive the work.  On a GPU a functor has at most 4,000 bytes.
// Extents of 0 are legal.
//
// Which skeleton:
//   ForEach, ForEachCell  each element by itself, the second with its row and column
//   ForEachPart           the elements of many small arrays
//   ForEachRow            a value of each row
//   TransformRows         a value of each row, and then the row by it
//   ReduceColumns         a value of each column
//   ScatterAdd            rows added to destinations that the data name
//
// Order of additions: the extents alone decide, on a GPU also whether there is scratch.  The thread
// count and the instruction set do not matter.  A GPU adds in another order than a CPU.
// Errors: those of Stream::Call, or Internal naming the skeleton if a GPU refuses the launch.  A
// call that g++ alone compiled is Unimplemented on a GPU.
#pragma once

#include <utility>
#include <vector>

#include "engine/runtime/check.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/host_device.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/fused_loop.h"
#include "engine/runtime/parallel/host.h"
#include "engine/runtime/parallel/split.h"
#if defined(__CUDACC__)
#include "engine/runtime/parallel/cuda.h"
#endif

namespace gyre {

// The base of a reduction that adds.  V{} must be zero, and + associative up to rounding.
template <typename V>
struct SumReduction {
  using Value = V;
  HOST_DEVICE V Identity() const { return V{}; }
  HOST_DEVICE V Combine(V a, V b) const { return a + b; }
};

// The loops of each compiler have names of their own: the linker keeps one of two functions of a
// name, and only nvcc's launch kernels.
#if defined(__CUDACC__)
inline namespace loops_by_nvcc {
#else
inline namespace loops_on_hosts {
#endif

// Calls f(i) for each i in [0, n), in any order and several at once.  A call may write only memory
// that no other call touches, unless by atomic operations.  A functor that reads and writes many
// elements has, in place of operator(),
//   Value Load(int64_t i) const;
//   void Store(int64_t i, Value v) const;
// The call is then Store(i, Load(i)), and a GPU calls Load of several i before it calls Store.
template <typename F>
absl::Status ForEach(Stream& stream, int64_t n, F f) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    using namespace parallel_internal;
    if (n == 0) return absl::OkStatus();
    return Launch("ForEach", stream, ElementBlocks(n, LoadsAndStores<F, int64_t>), ForEachKernel<F>,
                  n, f);
  }
#endif
  return stream.Call([n, f] {
    parallel_internal::HostForEach(n, f);
    return absl::OkStatus();
  });
}

// Calls f(row, column), or Store(row, column, Load(row, column)), for each of rows x columns cells,
// as ForEach does.
template <typename F>
absl::Status ForEachCell(Stream& stream, int64_t rows, int64_t columns, F f) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    using namespace parallel_internal;
    const int64_t n = rows * columns;
    if (n == 0) return absl::OkStatus();
    const bool in_batches = LoadsAndStores<F, int64_t, int64_t> && rows >= kBatch;
    return Launch("ForEachCell", stream, ElementBlocks(n, in_batches), ForEachCellKernel<F>, rows,
                  columns, f);
  }
#endif
  return stream.Call([rows, columns, f] {
    parallel_internal::HostForEachCell(rows, columns, f);
    return absl::OkStatus();
  });
}

// ForEach at once, on host memory and the calling thread's team, for work before there is a stream.
template <typename F>
void ForEachOnHost(int64_t n, const F& f) {
  parallel_internal::HostForEach(n, f);
}

// Calls part.f(i) for each part and each i in [0, part.n), as ForEach does.  A GPU fuses many small
// arrays into one kernel.  `unless` is device memory, or null.  If it is true when the stream
// reaches the work, nothing is called.
template <typename F>
absl::Status ForEachPart(Stream& stream, std::vector<FusedLoop<F>> parts,
                         const bool* unless = nullptr) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    return parallel_internal::LaunchForEachPart<F>(stream, parts, unless);
  }
#endif
  return stream.Call([parts = std::move(parts), unless] {
    if (unless == nullptr || !*unless) parallel_internal::HostForEachPart<F>(parts);
    return absl::OkStatus();
  });
}

// A reduction functor R has
//   using Value = ...;                              // a plain struct or number
//   Value Identity() const;                         // Combine(Identity(), v) == v
//   Value Load(int64_t row, int64_t column) const;
//   Value Combine(Value a, Value b) const;          // associative and commutative up to rounding
//   void Store(int64_t index, Value v) const;
// An argmax therefore breaks ties by an index in its Value (tests/runtime/monoid_check.h).  A Value
// of two numbers declares `Component`, their type, for a CPU's vectors.
//
// Results, with Identity() for an empty reduction:
//   ForEachRow     Store(row, Combine over columns of Load(row, column)) for each row
//   ReduceColumns  Store(column, Combine over rows of Load(row, column)) for each column
// Store of a row may write memory that no other row loads, and for ReduceColumns the same of
// columns.
//
// Scratch: without it a row, or a few neighbouring columns, occupies at most one block of a GPU.
// With it, long rows and columns are split into pieces first.  It is device memory of
// ForEachRowScratch (ReduceColumnsScratch) bytes, and null only if that is 0.  A CPU ignores it.
template <typename R>
absl::Status ForEachRow(Stream& stream, int64_t rows, int64_t columns, R reduction) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    return parallel_internal::LaunchForEachRow(stream, rows, columns, /*pieces=*/1, reduction);
  }
#endif
  return stream.Call([rows, columns, reduction] {
    parallel_internal::HostForEachRow(rows, columns, reduction);
    return absl::OkStatus();
  });
}

template <typename R>
absl::Status ReduceColumns(Stream& stream, int64_t rows, int64_t columns, R reduction) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    return parallel_internal::LaunchReduceColumns(stream, rows, columns, /*pieces=*/1, reduction);
  }
#endif
  return stream.Call([rows, columns, reduction] {
    parallel_internal::HostReduceColumns(rows, columns, reduction);
    return absl::OkStatus();
  });
}

template <typename R>
size_t ForEachRowScratch(int64_t rows, int64_t columns) {
  const int64_t pieces = parallel_internal::RowSplit(rows, columns);
  return pieces == 1 ? 0 : static_cast<size_t>(rows * pieces) * sizeof(typename R::Value);
}

template <typename R>
absl::Status ForEachRow(Stream& stream, int64_t rows, int64_t columns, R reduction,
                        [[maybe_unused]] void* scratch) {
#if defined(__CUDACC__)
  using namespace parallel_internal;
  const int64_t pieces = RowSplit(rows, columns);
  if (stream.kind() == DeviceKind::kCuda && pieces > 1) {
    auto* partial = static_cast<typename R::Value*>(scratch);
    RETURN_IF_ERROR(
        LaunchForEachRow(stream, rows, columns, pieces, IntoPartials<R>{reduction, partial}));
    return LaunchForEachRow(stream, rows, pieces, /*pieces=*/1,
                            OfPartials<R>{reduction, pieces, partial});
  }
#endif
  return ForEachRow(stream, rows, columns, reduction);
}

template <typename R>
size_t ReduceColumnsScratch(int64_t rows, int64_t columns) {
  const int64_t pieces = parallel_internal::ColumnSplit(rows, columns);
  return pieces == 1 ? 0 : static_cast<size_t>(pieces * columns) * sizeof(typename R::Value);
}

template <typename R>
absl::Status ReduceColumns(Stream& stream, int64_t rows, int64_t columns, R reduction,
                           [[maybe_unused]] void* scratch) {
#if defined(__CUDACC__)
  using namespace parallel_internal;
  const int64_t pieces = ColumnSplit(rows, columns);
  if (stream.kind() == DeviceKind::kCuda && pieces > 1) {
    auto* partial = static_cast<typename R::Value*>(scratch);
    RETURN_IF_ERROR(
        LaunchReduceColumns(stream, rows, columns, pieces, IntoPartials<R>{reduction, partial}));
    return LaunchReduceColumns(stream, pieces, columns, /*pieces=*/1,
                               OfPartials<R>{reduction, columns, partial});
  }
#endif
  return ReduceColumns(stream, rows, columns, reduction);
}

// Reduces each row to a value and applies it to the row, as softmax and normalisation do:
//   value = Finish(Combine over columns of Load(row, column))
//   Apply(row, column, value) for each column
// The functor has, in place of Store,
//   Value Finish(Value v) const;
//   void Apply(int64_t row, int64_t column, Value value) const;
// Apply may overwrite the element that Load(row, column) reads.  A GPU does not split a row.
template <typename R>
absl::Status TransformRows(Stream& stream, int64_t rows, int64_t columns, R reduction) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    using namespace parallel_internal;
    if (rows == 0 || columns == 0) return absl::OkStatus();
    return Launch("TransformRows", stream, CeilDiv<int64_t>(rows, kThreads / RowLanes(columns)),
                  TransformRowsKernel<R>, rows, columns, reduction);
  }
#endif
  return stream.Call([rows, columns, reduction] {
    parallel_internal::HostTransformRows(rows, columns, reduction);
    return absl::OkStatus();
  });
}

// Adds each row to the destination that the functor S gives for it.  Those of one destination are
// added in increasing order:
//   int64_t Destination(int64_t row) const;         // negative: skip the row
//   void Add(int64_t row, int64_t destination, int64_t column) const;
// Add is called for each column, and may touch only that column of the destination.  It must not
// change what Destination reads.  On a GPU the search for a destination's rows is quadratic in
// rows.
template <typename S>
absl::Status ScatterAdd(Stream& stream, int64_t rows, int64_t columns, S scatter) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    using namespace parallel_internal;
    if (rows == 0 || columns == 0) return absl::OkStatus();
    return Launch("ScatterAdd", stream, rows * CeilDiv(columns, kScatterColumns),
                  ScatterAddKernel<S>, rows, columns, scatter);
  }
#endif
  return stream.Call([rows, columns, scatter] {
    parallel_internal::HostScatterAdd(rows, columns, scatter);
    return absl::OkStatus();
  });
}

}  // namespace

}  // namespace gyre
