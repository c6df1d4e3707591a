// pool_geometry.h: the pixels that a pooling window holds, and the windows that hold a pixel.
#pragma once

#include "engine/runtime/host_device.h"
#include "engine/runtime/primitives/pool2d.h"

namespace gyre {

// An average adds this many pixels of a window's row in AccumulateType, and these sums in F64.
inline constexpr int kPooledRun = 256;

// Index is the type of offsets.  c counts a pixel's elements, perhaps of several channels each.
template <typename Index>
struct PoolGeometry {
  PoolGeometry(const Pool2dSpec& spec, int64_t elements)
      : h(static_cast<Index>(spec.h)),
        w(static_cast<Index>(spec.w)),
        c(static_cast<Index>(elements)),
        out_h(static_cast<Index>(spec.out_h())),
        out_w(static_cast<Index>(spec.out_w())),
        kernel_h(static_cast<Index>(spec.window.kernel_h)),
        kernel_w(static_cast<Index>(spec.window.kernel_w)),
        stride_h(static_cast<Index>(spec.window.stride_h)),
        stride_w(static_cast<Index>(spec.window.stride_w)),
        padding_top(static_cast<Index>(spec.window.padding_top)),
        padding_left(static_cast<Index>(spec.window.padding_left)) {}

  // Positions in one direction, [begin, end).
  struct Range {
    Index begin, end;
    HOST_DEVICE Index size() const { return end - begin; }
  };

  // The rows (columns) of the image that a window holds, at least one.
  HOST_DEVICE Range RowsOf(Index out_row) const {
    return Clip(out_row * stride_h - padding_top, kernel_h, h);
  }
  HOST_DEVICE Range ColumnsOf(Index out_column) const {
    return Clip(out_column * stride_w - padding_left, kernel_w, w);
  }
  // The windows that hold a row (column), perhaps none.
  HOST_DEVICE Range WindowsOfRow(Index row) const {
    return Covering(row + padding_top, kernel_h, stride_h, out_h);
  }
  HOST_DEVICE Range WindowsOfColumn(Index column) const {
    return Covering(column + padding_left, kernel_w, stride_w, out_w);
  }
  // The position of an image's pixel in a window, counted row by row.
  HOST_DEVICE Index PositionIn(Index out_row, Index out_column, Index row, Index column) const {
    return (row - (out_row * stride_h - padding_top)) * kernel_w +
           (column - (out_column * stride_w - padding_left));
  }

  Index h, w, c, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, padding_top, padding_left;

 private:
  HOST_DEVICE static Range Clip(Index begin, Index size, Index extent) {
    const Index end = begin + size;
    return {begin < 0 ? 0 : begin, end < extent ? end : extent};
  }
  HOST_DEVICE static Range Covering(Index padded, Index kernel, Index stride, Index count) {
    // Both divisions in any case, so that a compiler may move them out of a loop.
    const Index last = padded / stride, past = padded - kernel;
    return {(past < 0 ? 0 : past) / stride + (past < 0 ? 0 : 1), last < count ? last + 1 : count};
  }
};

}  // namespace gyre
