// image_frame.h: images N,H,W,C between explicit zeros, for padding that cuDNN is not asked for.
// Inside the CUDA library only.
#pragma once

#include <cstdint>

#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/window2d.h"

namespace gyre {

// The extents of images, and of the zeros around each.
struct ImageFrame {
  int64_t n = 0, h = 0, w = 0, c = 0;
  int64_t top = 0, left = 0, framed_h = 0, framed_w = 0;

  static ImageFrame Of(int64_t n, int64_t h, int64_t w, int64_t c, const Window2d& window) {
    return {.n = n,
            .h = h,
            .w = w,
            .c = c,
            .top = window.padding_top,
            .left = window.padding_left,
            .framed_h = window.padding_top + h + window.padding_bottom,
            .framed_w = window.padding_left + w + window.padding_right};
  }
  int64_t elements() const { return n * h * w * c; }
  int64_t framed_elements() const { return n * framed_h * framed_w * c; }
};

// Of elements by their bits, T is an unsigned integer.
template <typename T>
struct FrameImages {
  ImageFrame frame;
  const T* from;
  T* to;  // framed
  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t pixel = i / frame.c, line = pixel / frame.framed_w;
    const int64_t column = pixel % frame.framed_w - frame.left;
    const int64_t row = line % frame.framed_h - frame.top, image = line / frame.framed_h;
    if (row < 0 || row >= frame.h || column < 0 || column >= frame.w) {
      to[i] = 0;
    } else {
      to[i] = from[((image * frame.h + row) * frame.w + column) * frame.c + i % frame.c];
    }
  }
};

template <typename T>
struct UnframeImages {
  ImageFrame frame;
  const T* from;  // framed
  T* to;
  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t pixel = i / frame.c, line = pixel / frame.w;
    const int64_t column = pixel % frame.w + frame.left;
    const int64_t row = line % frame.h + frame.top, image = line / frame.h;
    to[i] =
        from[((image * frame.framed_h + row) * frame.framed_w + column) * frame.c + i % frame.c];
  }
};

}  // namespace gyre
