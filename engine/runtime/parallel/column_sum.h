// column_sum.h: the reduction that makes a bias's gradient, for ReduceColumns.
#pragma once

#include "engine/runtime/dtype.h"
#include "engine/runtime/parallel/parallel.h"

namespace gyre {

// to[column] = the sum over rows of from[rows, columns].  It is summed in F64, because a bias may
// be added to all pixels of large images.
template <typename T>
struct ColumnSum : SumReduction<double> {
  int64_t columns;
  const T* from;
  T* to;

  HOST_DEVICE double Load(int64_t row, int64_t column) const {
    return static_cast<AccumulateType<T>>(from[row * columns + column]);
  }
  HOST_DEVICE void Store(int64_t column, double sum) const {
    to[column] = static_cast<T>(static_cast<AccumulateType<T>>(sum));
  }
};

}  // namespace gyre
