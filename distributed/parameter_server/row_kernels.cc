#include "distributed/parameter_server/row_kernels.h"

#include "engine/runtime/check.h"
#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

struct Gather {
  template <typename T, typename P>
  HOST_DEVICE void operator()(T& table, P& packed) const {
    packed = static_cast<P>(table);
  }
};

struct Scatter {
  template <typename T, typename P>
  HOST_DEVICE void operator()(T& table, P& packed) const {
    table = static_cast<T>(packed);
  }
};

struct AddScaled {
  double factor = 0;
  template <typename T, typename P>
  HOST_DEVICE void operator()(T& table, P& packed) const {
    using A = AccumulateType<T>;
    table = static_cast<T>(static_cast<A>(table) + static_cast<A>(factor) * static_cast<A>(packed));
  }
};

template <typename T>
struct SetZero {
  T* values = nullptr;
  HOST_DEVICE void operator()(int64_t i) const { values[i] = static_cast<T>(0); }
};

template <typename P>
struct Round {
  float* values = nullptr;
  HOST_DEVICE void operator()(int64_t i) const {
    values[i] = static_cast<float>(static_cast<P>(values[i]));
  }
};

template <typename T, typename P, typename Move>
struct MoveRow {
  RowIndices places;
  int64_t width = 0;
  T* table = nullptr;
  P* packed = nullptr;
  Move move;
  HOST_DEVICE void operator()(int64_t k, int64_t column) const {
    const int64_t row = places.index == nullptr ? places.first + k : places.index[k];
    move(table[row * width + column], packed[k * width + column]);
  }
};

template <typename Move>
absl::Status MoveRows(Stream& stream, RowIndices places, int64_t width, Tensor table, Tensor packed,
                      Move move) {
  const auto run = [&]<typename T, typename P>() {
    return ForEachCell(stream, places.count, width,
                       MoveRow<T, P, Move>{places, width, table.as<T>(), packed.as<P>(), move});
  };
  return VisitReal(packed.dtype, [&]<typename P>() {
    if (table.dtype == packed.dtype) return run.template operator()<P, P>();
    GYRE_CHECK(table.dtype == AccumulateDType(packed.dtype));
    return run.template operator()<AccumulateType<P>, P>();
  });
}

template <typename Move>
absl::Status CopyRows(Stream& stream, RowIndices places, int64_t width, Tensor table, Tensor packed,
                      Move move, bool from_table) {
  if (places.index != nullptr || table.dtype != packed.dtype) {
    return MoveRows(stream, places, width, table, packed, move);
  }
  const size_t row_bytes = static_cast<size_t>(width) * SizeOf(table.dtype);
  const size_t bytes = static_cast<size_t>(places.count) * row_bytes;
  auto* const at = static_cast<std::byte*>(table.data) + places.first * row_bytes;
  if (bytes == 0) return absl::OkStatus();
  return from_table ? stream.Copy(packed.data, at, bytes) : stream.Copy(at, packed.data, bytes);
}

}  // namespace

absl::Status GatherRows(Stream& stream, RowIndices places, int64_t width, Tensor table,
                        Tensor packed) {
  return CopyRows(stream, places, width, table, packed, Gather{}, /*from_table=*/true);
}

absl::Status ScatterRows(Stream& stream, RowIndices places, int64_t width, Tensor packed,
                         Tensor table) {
  return CopyRows(stream, places, width, table, packed, Scatter{}, /*from_table=*/false);
}

absl::Status AddScaledRows(Stream& stream, RowIndices places, int64_t width, double factor,
                           Tensor packed, Tensor table) {
  return MoveRows(stream, places, width, table, packed, AddScaled{factor});
}

absl::Status RoundTo(Stream& stream, DType to, Tensor values) {
  GYRE_CHECK(values.dtype == DType::kF32 && SizeOf(to) == 2);
  if (to == DType::kF16) {
    return ForEach(stream, values.elements(), Round<Half>{values.as<float>()});
  }
  return ForEach(stream, values.elements(), Round<BFloat16>{values.as<float>()});
}

absl::Status FillWithZeros(Stream& stream, Tensor values) {
  return VisitReal(values.dtype, [&]<typename T>() {
    return ForEach(stream, values.elements(), SetZero<T>{values.as<T>()});
  });
}

}  // namespace gyre
