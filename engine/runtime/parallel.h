// parallel.h: the four loop skeletons that every kernel of our own is an instance of.  The only
// layer-facing file that mentions __CUDACC__.
//
// A functor is a named struct of values and pointers with HOST_DEVICE methods; it is copied into
// the stream.  The order of additions depends on the extents alone, never on the thread count.
#pragma once

#include "engine/runtime/device.h"
#include "engine/runtime/host_device.h"

namespace gyre {

// Calls f(i) for each i in [0, n), in no particular order.  Enqueues on stream.
template <typename F>
absl::Status ForEach(Stream& stream, int64_t n, F f);

// A reduction is described by a functor R with
//   using Value = ...;
//   Value Identity() const;                         // Combine(Identity(), v) == v
//   Value Load(int64_t row, int64_t column) const;
//   Value Combine(Value a, Value b) const;          // associative up to rounding
//   void Store(int64_t index, Value v) const;
//
// ForEachRow:    Store(row, Combine over columns of Load(row, column)) for each row.
// ReduceColumns: Store(column, Combine over rows of Load(row, column)) for each column.
// An empty reduction stores Identity().  Enqueues on stream.
template <typename R>
absl::Status ForEachRow(Stream& stream, int64_t rows, int64_t columns, R reduction);
template <typename R>
absl::Status ReduceColumns(Stream& stream, int64_t rows, int64_t columns, R reduction);

// For each row in increasing order: Add(row, column) for each column, where rows with the same
// destination are added one after another.  A functor S has
//   int64_t Destination(int64_t row) const;         // negative: skip the row
//   void Add(int64_t row, int64_t destination, int64_t column) const;
template <typename S>
absl::Status ScatterAdd(Stream& stream, int64_t rows, int64_t columns, S scatter);

}  // namespace gyre
