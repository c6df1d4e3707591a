// parallel.h: the four loop skeletons that every kernel of our own is an instance of.  The only
// layer-facing file that mentions __CUDACC__.
//
// A functor is a named struct of values and pointers with HOST_DEVICE const methods; it is copied
// into the stream, and what it points to must outlive the work.  The order of additions depends on
// the extents alone, never on the thread count (but a GPU's order is another than a CPU's).
// Extents of 0 are legal.  Errors of all four: those of Stream::Call; Internal naming the skeleton
// if a GPU refuses the launch.
#pragma once

#include "engine/runtime/device.h"
#include "engine/runtime/host_device.h"
#include "engine/runtime/parallel_host.h"
#if defined(__CUDACC__)
#include "engine/runtime/parallel_cuda.h"
#endif

namespace gyre {

// Calls f(i) for each i in [0, n), in no particular order and several at once: a call writes
// nothing that another one touches, but by atomic operations.  Enqueues on stream.
template <typename F>
absl::Status ForEach(Stream& stream, int64_t n, F f) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    using namespace parallel_internal;
    if (n == 0) return absl::OkStatus();
    ForEachKernel<<<Blocks(n, kThreads), kThreads, 0, NativeStream(stream)>>>(n, f);
    return LaunchStatus("ForEach");
  }
#endif
  return stream.Call([n, f] {
    parallel_internal::HostForEach(n, f);
    return absl::OkStatus();
  });
}

// A reduction is described by a functor R with
//   using Value = ...;                              // a plain struct or number
//   Value Identity() const;                         // Combine(Identity(), v) == v
//   Value Load(int64_t row, int64_t column) const;
//   Value Combine(Value a, Value b) const;          // associative and commutative up to rounding
//   void Store(int64_t index, Value v) const;
// so an argmax breaks ties by the index that its Value carries (tests/runtime/monoid_check.h).
//
// ForEachRow:    Store(row, Combine over columns of Load(row, column)) for each row.
// ReduceColumns: Store(column, Combine over rows of Load(row, column)) for each column.
// An empty reduction stores Identity().  Store may write what the other rows (columns) do not load.
// Enqueues on stream.
template <typename R>
absl::Status ForEachRow(Stream& stream, int64_t rows, int64_t columns, R reduction) {
#if defined(__CUDACC__)
  if (stream.kind() == DeviceKind::kCuda) {
    using namespace parallel_internal;
    if (rows == 0) return absl::OkStatus();
    ForEachRowKernel<<<Blocks(rows, 1), kThreads, 0, NativeStream(stream)>>>(rows, columns,
                                                                             reduction);
    return LaunchStatus("ForEachRow");
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
    using namespace parallel_internal;
    if (columns == 0) return absl::OkStatus();
    ReduceColumnsKernel<<<Blocks(columns, kWarp), kThreads, 0, NativeStream(stream)>>>(
        rows, columns, reduction);
    return LaunchStatus("ReduceColumns");
  }
#endif
  return stream.Call([rows, columns, reduction] {
    parallel_internal::HostReduceColumns(rows, columns, reduction);
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
    ScatterAddKernel<<<Blocks(columns, kThreads), kThreads, 0, NativeStream(stream)>>>(
        rows, columns, scatter);
    return LaunchStatus("ScatterAdd");
  }
#endif
  return stream.Call([rows, columns, scatter] {
    parallel_internal::HostScatterAdd(rows, columns, scatter);
    return absl::OkStatus();
  });
}

}  // namespace gyre
