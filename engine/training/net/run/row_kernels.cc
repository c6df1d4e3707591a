#include "engine/training/net/run/row_kernels.h"

#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

struct KeepIndex {
  const int32_t* indices;
  int64_t count, rows;
  int32_t* kept;
  HOST_DEVICE void operator()(int64_t i) const {
    const int32_t index = i < count ? indices[i] : -1;
    kept[i] = index >= 0 && index < rows ? index : -1;
  }
};

struct ForgetFirst {
  const int32_t* kept;
  int32_t last;
  int32_t* first;
  HOST_DEVICE int64_t Destination(int64_t k) const { return kept[k]; }
  HOST_DEVICE void Add(int64_t, int64_t row, int64_t) const { first[row] = last; }
};

struct FindFirst {
  const int32_t* kept;
  int32_t* first;
  HOST_DEVICE int64_t Destination(int64_t k) const { return kept[k]; }
  HOST_DEVICE void Add(int64_t k, int64_t row, int64_t) const {
    if (k < first[row]) first[row] = static_cast<int32_t>(k);
  }
};

template <typename Name>
struct NameRow {
  const int32_t* kept;
  const int32_t* first;
  Name* names;
  HOST_DEVICE void operator()(int64_t k) const {
    const int32_t row = kept[k];
    names[k] = static_cast<Name>(row >= 0 && first[row] == k ? row : -1);
  }
};

template <typename T>
struct PackRow {
  const double* names;
  int64_t width;
  const T* table;
  T* values;
  HOST_DEVICE void operator()(int64_t k, int64_t column) const {
    const auto row = static_cast<int64_t>(names[k]);
    values[k * width + column] = row < 0 ? static_cast<T>(0) : table[row * width + column];
  }
};

template <typename T>
struct UnpackRow {
  const int32_t* names;
  int64_t width;
  const T* values;
  T* table;
  HOST_DEVICE void operator()(int64_t k, int64_t column) const {
    if (names[k] >= 0) table[names[k] * width + column] = values[k * width + column];
  }
};

}  // namespace

absl::Status KeepIndices(Stream& stream, Tensor indices, int64_t rows, int64_t a_batch,
                         Tensor kept) {
  int32_t* const latest = kept.as<int32_t>();
  for (int64_t at = kept.elements() - a_batch; at > 0; at -= a_batch) {
    RETURN_IF_ERROR(stream.Copy(latest + at, latest + at - a_batch,
                                static_cast<size_t>(a_batch) * sizeof(int32_t)));
  }
  return ForEach(stream, a_batch,
                 KeepIndex{indices.as<int32_t>(), indices.elements(), rows, latest});
}

absl::Status NameRows(Stream& stream, Tensor kept, Tensor first, Tensor names) {
  const int64_t n = kept.elements();
  const int32_t* const rows = kept.as<int32_t>();
  // Not ForEach, as several entries may name one row.
  RETURN_IF_ERROR(ScatterAdd(stream, n, /*columns=*/1,
                             ForgetFirst{rows, static_cast<int32_t>(n), first.as<int32_t>()}));
  RETURN_IF_ERROR(ScatterAdd(stream, n, /*columns=*/1, FindFirst{rows, first.as<int32_t>()}));
  const auto name = [&]<typename Name>(Name* to) {
    return ForEach(stream, n, NameRow<Name>{rows, first.as<int32_t>(), to});
  };
  return names.dtype == DType::kI32 ? name(names.as<int32_t>()) : name(names.as<double>());
}

absl::Status PackRows(Stream& stream, Tensor names, int64_t width, Tensor table, Tensor values) {
  return VisitReal(table.dtype, [&]<typename T>() {
    return ForEachCell(stream, names.elements(), width,
                       PackRow<T>{names.as<double>(), width, table.as<T>(), values.as<T>()});
  });
}

absl::Status UnpackRows(Stream& stream, Tensor names, int64_t width, Tensor values, Tensor table) {
  return VisitReal(table.dtype, [&]<typename T>() {
    return ForEachCell(stream, names.elements(), width,
                       UnpackRow<T>{names.as<int32_t>(), width, values.as<T>(), table.as<T>()});
  });
}

}  // namespace gyre
