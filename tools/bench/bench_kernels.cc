#include "tools/bench/bench_kernels.h"

#include "engine/runtime/parallel/column_sum.h"
#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

template <typename T>
struct Squares : SumReduction<double> {
  const T* from;
  double* to;
  HOST_DEVICE double Load(int64_t, int64_t i) const {
    const double x = static_cast<double>(from[i]);
    return x * x;
  }
  HOST_DEVICE void Store(int64_t, double sum) const { *to = sum; }
};

}  // namespace

absl::Status Reduce(Stream& stream, Reduction reduction, DType dtype, int64_t rows, int64_t columns,
                    const void* from, void* to, void* scratch) {
  return VisitReal(dtype, [&]<typename T>() {
    const T* const x = static_cast<const T*>(from);
    if (reduction == Reduction::kSquares) {
      const Squares<T> squares{{}, x, static_cast<double*>(to)};
      return scratch == nullptr ? ForEachRow(stream, 1, rows * columns, squares)
                                : ForEachRow(stream, 1, rows * columns, squares, scratch);
    }
    const ColumnSum<T> sums{{}, columns, x, static_cast<T*>(to)};
    return scratch == nullptr ? ReduceColumns(stream, rows, columns, sums)
                              : ReduceColumns(stream, rows, columns, sums, scratch);
  });
}

size_t ReductionScratch(Reduction reduction, DType dtype, int64_t rows, int64_t columns) {
  return VisitReal(dtype, [&]<typename T>() {
    return reduction == Reduction::kSquares ? ForEachRowScratch<Squares<T>>(1, rows * columns)
                                            : ReduceColumnsScratch<ColumnSum<T>>(rows, columns);
  });
}

}  // namespace gyre
