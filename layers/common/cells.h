// cells.h: copies boxes of elements, for layers that move values.  It copies bits, so only the size
// of a type matters.  RoundElement converts.
#pragma once

#include "engine/runtime/parallel/parallel.h"

namespace gyre {

// A box of adjacent elements of each row.  Rows are `stride` elements apart.
struct Cells {
  void* first = nullptr;
  int64_t stride = 0;
};

template <typename Bits>
struct CopyCell {
  const Bits* from;
  int64_t from_stride;
  Bits* to;
  int64_t to_stride;
  HOST_DEVICE Bits Load(int64_t row, int64_t column) const {
    return from[row * from_stride + column];
  }
  HOST_DEVICE void Store(int64_t row, int64_t column, Bits v) const {
    to[row * to_stride + column] = v;
  }
};

template <typename Bits>
struct ZeroCell {
  Bits* to;
  int64_t stride;
  HOST_DEVICE void operator()(int64_t row, int64_t column) const { to[row * stride + column] = 0; }
};

template <typename From, typename To>
struct RoundElement {
  const From* from;
  To* to;
  HOST_DEVICE To Load(int64_t i) const { return static_cast<To>(from[i]); }
  HOST_DEVICE void Store(int64_t i, To v) const { to[i] = v; }
};

// Calls f<Bits>() for the unsigned integer as large as dtype, a real type or I32.
template <typename F>
auto VisitBits(DType dtype, const F& f) {
  switch (SizeOf(dtype)) {
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      GYRE_CHECK(SizeOf(dtype) == 8);
      return f.template operator()<uint64_t>();
  }
}

// to <- from, which may equal `to`.  Enqueues on stream.
inline absl::Status CopyCells(Stream& stream, DType dtype, int64_t rows, int64_t columns,
                              Cells from, Cells to) {
  if (from.first == to.first && rows <= 1) return absl::OkStatus();
  return VisitBits(dtype, [&]<typename Bits>() {
    return ForEachCell(stream, rows, columns,
                       CopyCell<Bits>{static_cast<const Bits*>(from.first), from.stride,
                                      static_cast<Bits*>(to.first), to.stride});
  });
}

// to <- 0.  Enqueues on stream.
inline absl::Status ZeroCells(Stream& stream, DType dtype, int64_t rows, int64_t columns,
                              Cells to) {
  return VisitBits(dtype, [&]<typename Bits>() {
    return ForEachCell(stream, rows, columns,
                       ZeroCell<Bits>{static_cast<Bits*>(to.first), to.stride});
  });
}

}  // namespace gyre
