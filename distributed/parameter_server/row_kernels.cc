#include "distributed/parameter_server/row_kernels.h"

#include "engine/runtime/check.h"
#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

struct Gather {
  template <typename T>
  HOST_DEVICE void operator()(T& table, T& packed) const {
    packed = table;
  }
};

struct Scatter {
  template <typename T>
  HOST_DEVICE void operator()(T& table, T& packed) const {
    table = packed;
  }
};

struct Add {
  template <typename T>
  HOST_DEVICE void operator()(T& table, T& packed) const {
    table += packed;
  }
};

struct Clear {
  template <typename T>
  HOST_DEVICE void operator()(T& table, T&) const {
    table = static_cast<T>(0);
  }
};

struct AddScaled {
  double factor = 0;
  template <typename T>
  HOST_DEVICE void operator()(T& table, T& packed) const {
    table += static_cast<T>(factor) * packed;
  }
};

template <typename T, typename Move>
struct MoveRow {
  RowPlaces places;
  int64_t width = 0;
  T* table = nullptr;
  T* packed = nullptr;
  Move move;
  HOST_DEVICE void operator()(int64_t k, int64_t column) const {
    const int64_t row = places.index == nullptr ? places.first + k : places.index[k];
    move(table[row * width + column], packed[k * width + column]);
  }
};

template <typename Move>
absl::Status MoveRows(Stream& stream, RowPlaces places, int64_t width, Tensor table, Tensor packed,
                      Move move) {
  GYRE_CHECK(table.dtype == packed.dtype);
  const auto run = [&]<typename T>(T) {
    return ForEachCell(stream, places.count, width,
                       MoveRow<T, Move>{places, width, table.as<T>(), packed.as<T>(), move});
  };
  return table.dtype == DType::kF64 ? run(double{}) : run(float{});
}

template <typename Move>
absl::Status CopyRows(Stream& stream, RowPlaces places, int64_t width, Tensor table, Tensor packed,
                      Move move, bool from_table) {
  if (places.index != nullptr) return MoveRows(stream, places, width, table, packed, move);
  const size_t row_bytes = static_cast<size_t>(width) * SizeOf(table.dtype);
  const size_t bytes = static_cast<size_t>(places.count) * row_bytes;
  auto* const at = static_cast<std::byte*>(table.data) + places.first * row_bytes;
  if (bytes == 0) return absl::OkStatus();
  return from_table ? stream.Copy(packed.data, at, bytes) : stream.Copy(at, packed.data, bytes);
}

}  // namespace

absl::Status GatherRows(Stream& stream, RowPlaces places, int64_t width, Tensor table,
                        Tensor packed) {
  return CopyRows(stream, places, width, table, packed, Gather{}, /*from_table=*/true);
}

absl::Status ScatterRows(Stream& stream, RowPlaces places, int64_t width, Tensor packed,
                         Tensor table) {
  return CopyRows(stream, places, width, table, packed, Scatter{}, /*from_table=*/false);
}

absl::Status AddRows(Stream& stream, RowPlaces places, int64_t width, Tensor packed, Tensor table) {
  return MoveRows(stream, places, width, table, packed, Add{});
}

absl::Status AddScaledRows(Stream& stream, RowPlaces places, int64_t width, double factor,
                           Tensor packed, Tensor table) {
  return MoveRows(stream, places, width, table, packed, AddScaled{factor});
}

absl::Status ClearRows(Stream& stream, RowPlaces places, int64_t width, Tensor table) {
  return MoveRows(stream, places, width, table, table, Clear{});
}

}  // namespace gyre
