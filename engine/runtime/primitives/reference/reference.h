// reference.h: the reference library's operations, one file for each, and its reductions, whose
// laws a test checks.  Inside the library only.  Every Prepare takes a valid spec of a real type.
#pragma once

#include <memory>

#include "engine/runtime/parallel/column_sum.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareReferenceConv2d(const Conv2dSpec& spec);
std::unique_ptr<Pool2d> PrepareReferencePool2d(const Pool2dSpec& spec);

// A convolution's extents, for kernels.  A tap is one (kernel row, kernel column).
struct ConvGeometry {
  explicit ConvGeometry(const Conv2dSpec& spec)
      : h(spec.h),
        w(spec.w),
        c(spec.c),
        filters(spec.filters),
        window(spec.window),
        out_h(spec.out_h()),
        out_w(spec.out_w()),
        group_channels(spec.c / spec.groups),
        group_filters(spec.filters / spec.groups) {}

  int64_t h, w, c, filters;
  Window2d window;
  int64_t out_h, out_w, group_channels, group_filters;
};

// dweights[weight] = the sum over output pixels of dy times the element of x that the weight met.
// Rows are weights in canonical order, columns are output pixels.
template <typename T>
struct WeightGradient : SumReduction<AccumulateType<T>> {
  using Value = AccumulateType<T>;
  ConvGeometry g;
  const T* x;
  const T* dy;
  T* dweights;

  HOST_DEVICE Value Load(int64_t weight, int64_t pixel) const {
    const int64_t kernel_column = weight % g.window.kernel_w,
                  kernel_row = weight / g.window.kernel_w % g.window.kernel_h;
    const int64_t channel_and_filter = weight / (g.window.kernel_w * g.window.kernel_h);
    const int64_t filter = channel_and_filter / g.group_channels;
    const int64_t channel =
        channel_and_filter % g.group_channels + filter / g.group_filters * g.group_channels;
    const int64_t row = pixel / g.out_w % g.out_h * g.window.stride_h - g.window.padding_top +
                        kernel_row * g.window.dilation_h;
    const int64_t column = pixel % g.out_w * g.window.stride_w - g.window.padding_left +
                           kernel_column * g.window.dilation_w;
    if (row < 0 || row >= g.h || column < 0 || column >= g.w) return 0;
    const int64_t image = pixel / (g.out_w * g.out_h);
    return static_cast<Value>(dy[pixel * g.filters + filter]) *
           static_cast<Value>(x[((image * g.h + row) * g.w + column) * g.c + channel]);
  }
  HOST_DEVICE void Store(int64_t weight, Value v) const { dweights[weight] = static_cast<T>(v); }
};

}  // namespace gyre
