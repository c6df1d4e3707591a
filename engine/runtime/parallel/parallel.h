// parallel.h: the loop skeletons that every kernel of our own is an instance of.  The only
// layer-facing file that mentions __CUDACC__.
//
// A functor is a named struct of values and pointers with HOST_DEVICE const methods; it is copied
// into the stream, and what it points to must outlive the work.  The order of additions depends on
// the extents alone (on a GPU also on whether there is scratch), never on the thread count or the
// instruction set; a GPU's order is another than a CPU's.  Extents of 0 are legal.  Errors of all:
// those of Stream::Call; Internal naming the skeleton if a GPU refuses the launch.
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

// What a reduction that adds inherits: V{} is zero, and + is associative up to rounding.
template <typename V>
struct SumReduction {
  using Value = V;
  HOST_DEVICE V Identity() const { return V{}; }
  HOST_DEVICE V Combine(V a, V b) const { return a + b; }
};

// Calls f(i) for each i in [0, n), in no particular order and several at once: a call writes
// nothing that another one touches, but by atomic operations.  Enqueues on stream.
template <typename F>
absl::Status ForEach(Stream& stream, int64_t n, F f) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    using namespace parallel_internal;
    if (n == 0) return absl::OkStatus();
    return Launch("ForEach", stream, CeilDiv<int64_t>(n, kThreads), ForEachKernel<F>, n, f);
  }
#endif
  return stream.Call([n, f] {
    parallel_internal::HostForEach(n, f);
    return absl::OkStatus();
  });
}

// Calls f(row, column) for each of rows x columns cells, as ForEach does.  Enqueues on stream.
template <typename F>
absl::Status ForEachCell(Stream& stream, int64_t rows, int64_t columns, F f) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    using namespace parallel_internal;
    const int64_t n = rows * columns;
    if (n == 0) return absl::OkStatus();
    return Launch("ForEachCell", stream, CeilDiv<int64_t>(n, kThreads), ForEachCellKernel<F>, n,
                  columns, f);
  }
#endif
  return stream.Call([rows, columns, f] {
    parallel_internal::HostForEachCell(rows, columns, f);
    return absl::OkStatus();
  });
}

// ForEach on host memory and the calling thread's team, at once: for work before there is a
// stream.
template <typename F>
void ForEachOnHost(int64_t n, const F& f) {
  parallel_internal::HostForEach(n, f);
}

// Calls part.f(i) for each i in [0, part.n), for each part, as ForEach does: one loop, or kernel,
// for many small arrays.  unless: device memory, or null; where it is true when the stream gets
// there nothing is called.  Enqueues on stream.
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

// A reduction is described by a functor R with
//   using Value = ...;                              // a plain struct or number
//   Value Identity() const;                         // Combine(Identity(), v) == v
//   Value Load(int64_t row, int64_t column) const;
//   Value Combine(Value a, Value b) const;          // associative and commutative up to rounding
//   void Store(int64_t index, Value v) const
// so an argmax breaks ties by the index that its Value carries (tests/runtime/monoid_check.h).
// A sum inherits its laws from SumReduction.  A Value that is two numbers of one type names that
// type, for a CPU's vectors: using Component = ...;
//
// ForEachRow:    Store(row, Combine over columns of Load(row, column)) for each row.
// ReduceColumns: Store(column, Combine over rows of Load(row, column)) for each column.
// An empty reduction stores Identity().  Store may write what the other rows (columns) do not load.
// Enqueues on stream.
//
// A GPU gives a row to one block at most, and a few neighbouring columns to one, so a few long ones
// occupy little of it; with scratch, device memory of ForEachRowScratch (ReduceColumnsScratch)
// bytes, they are cut into pieces first.  A CPU makes no use of scratch.
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

// For each row: value = Finish(Combine over columns of Load(row, column)), then
// Apply(row, column, value) for each column: a softmax or a normalisation.  The functor has, in
// place of Store,
//   Value Finish(Value v) const;
//   void Apply(int64_t row, int64_t column, Value value) const;
// Apply may overwrite what Load(row, column) read.  Enqueues on stream.
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

// For each row in increasing order: Add(row, column) for each column, where rows with the same
// destination are added one after another.  A functor S has
//   int64_t Destination(int64_t row) const;         // negative: skip the row
//   void Add(int64_t row, int64_t destination, int64_t column) const;
// Add touches that column of the destination alone.  Enqueues on stream.
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

}  // namespace gyre
