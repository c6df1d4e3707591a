// window2d.h: a window that slides over images, in rows (_h) and columns (_w).  A pure value.
#pragma once

#include <cstdint>

namespace gyre {

// Padding is zeros around the image.
struct Window2d {
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t padding_top = 0, padding_bottom = 0, padding_left = 0, padding_right = 0;

  // The extent from the first to the last element that the window touches.
  int64_t span_h() const { return Span(kernel_h, dilation_h); }
  int64_t span_w() const { return Span(kernel_w, dilation_w); }
  // Positions over an image of `h` rows (`w` columns), 0 if it does not fit or a stride is below 1.
  int64_t out_h(int64_t h) const {
    return Positions(padding_top + h + padding_bottom, span_h(), stride_h);
  }
  int64_t out_w(int64_t w) const {
    return Positions(padding_left + w + padding_right, span_w(), stride_w);
  }

 private:
  static int64_t Span(int64_t kernel, int64_t dilation) { return dilation * (kernel - 1) + 1; }
  static int64_t Positions(int64_t extent, int64_t span, int64_t stride) {
    return extent < span || stride < 1 ? 0 : (extent - span) / stride + 1;
  }
};

}  // namespace gyre
