#include "tests/runtime/any_parallel.h"

#include "engine/runtime/parallel/parallel.h"
#include "tests/runtime/scatter_case.h"

namespace gyre {
namespace {

struct PlusOne {
  const int64_t* x;
  int64_t* y;
  HOST_DEVICE int64_t Load(int64_t i) const { return x[i] + 1; }
  HOST_DEVICE void Store(int64_t i, int64_t v) const { y[i] = v; }
};

struct CellPlusOne {
  int64_t columns;
  PlusOne of;
  HOST_DEVICE int64_t Load(int64_t row, int64_t column) const {
    return of.Load(row * columns + column);
  }
  HOST_DEVICE void Store(int64_t row, int64_t column, int64_t v) const {
    of.Store(row * columns + column, v);
  }
};

struct Total : SumReduction<int64_t> {
  int64_t columns;
  const int64_t* x;
  int64_t* y;
  HOST_DEVICE int64_t Load(int64_t row, int64_t column) const { return x[row * columns + column]; }
  HOST_DEVICE void Store(int64_t i, int64_t total) const { y[i] = total; }
};

struct LessTotal : Total {
  HOST_DEVICE int64_t Finish(int64_t total) const { return total; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, int64_t total) const {
    y[row * columns + column] = x[row * columns + column] - total;
  }
};

}  // namespace

absl::Status AnyParallel(Stream& stream, Skeleton skeleton, int64_t rows, int64_t columns,
                         const int64_t* x, int64_t* y, void* scratch) {
  const Total total{{}, columns, x, y};
  switch (skeleton) {
    case Skeleton::kForEach:
      return ForEach(stream, rows * columns, PlusOne{x, y});
    case Skeleton::kForEachCell:
      return ForEachCell(stream, rows, columns, CellPlusOne{columns, {x, y}});
    case Skeleton::kForEachRow:
      return scratch == nullptr ? ForEachRow(stream, rows, columns, total)
                                : ForEachRow(stream, rows, columns, total, scratch);
    case Skeleton::kReduceColumns:
      return scratch == nullptr ? ReduceColumns(stream, rows, columns, total)
                                : ReduceColumns(stream, rows, columns, total, scratch);
    case Skeleton::kTransformRows:
      return TransformRows(stream, rows, columns, LessTotal{total});
  }
  return absl::InternalError("no such skeleton");
}

size_t AnyParallelScratch(Skeleton skeleton, int64_t rows, int64_t columns) {
  if (skeleton == Skeleton::kForEachRow) return ForEachRowScratch<Total>(rows, columns);
  if (skeleton == Skeleton::kReduceColumns) return ReduceColumnsScratch<Total>(rows, columns);
  return 0;
}

absl::Status AnyScatter(Stream& stream, int64_t rows, int64_t columns, const int64_t* destination,
                        const float* x, float* y) {
  return ScatterAdd(stream, rows, columns, AddRows{destination, x, y, columns});
}

}  // namespace gyre
