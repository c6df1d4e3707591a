#include "distributed/collectives/device_reduction.h"

#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

template <typename T>
struct AddElement {
  T* sum;
  const T* addend;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    sum[i] = static_cast<T>(static_cast<A>(sum[i]) + static_cast<A>(addend[i]));
  }
};

// Row r has elements [r columns, (r + 1) columns) of `count`.
template <typename T>
struct MeasureRows : SumReduction<double> {
  const T* data;
  int64_t count, columns;
  double* rows;
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    const int64_t i = row * columns + column;
    if (i >= count) return Identity();
    const double x = data[i];
    return x * x;
  }
  HOST_DEVICE void Store(int64_t row, Value value) const { rows[row] = value; }
};

struct MeasureTotal : SumReduction<double> {
  DeviceMeasure* measure;
  HOST_DEVICE Value Load(int64_t, int64_t row) const { return measure->rows[row]; }
  HOST_DEVICE void Store(int64_t, Value value) const { measure->total = value; }
};

}  // namespace

absl::Status EnqueueAdd(Stream& stream, DType dtype, void* sum, const void* addend, int64_t count) {
  return VisitReal(dtype, [&]<typename T>() {
    return ForEach(stream, count,
                   AddElement<T>{static_cast<T*>(sum), static_cast<const T*>(addend)});
  });
}

absl::Status EnqueueMeasure(Stream& stream, DType dtype, const void* data, int64_t count,
                            DeviceMeasure* measure) {
  constexpr int64_t kRows = DeviceMeasure::kRows;
  const int64_t columns = (count + kRows - 1) / kRows;
  RETURN_IF_ERROR(VisitReal(dtype, [&]<typename T>() {
    return ForEachRow(
        stream, kRows, columns,
        MeasureRows<T>{{}, static_cast<const T*>(data), count, columns, measure->rows});
  }));
  return ForEachRow(stream, 1, kRows, MeasureTotal{{}, measure});
}

}  // namespace gyre
