// depthwise_walk.h: the taps that connect the pixels of a convolution's two images, and a walk over
// them.  Inside the library only.  They are found once, so that loops over pixels do not divide.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/runtime/primitives/conv2d.h"

namespace gyre {

// The taps of one direction that connect a position with positions of the other image, and these
// positions.  Both are evenly spaced.
struct Reach {
  int64_t tap = 0, tap_step = 0, other = 0, other_step = 0, count = 0;

  void Add(int64_t next_tap, int64_t next_other) {
    if (count == 0) tap = next_tap, other = next_other;
    if (count == 1) tap_step = next_tap - tap, other_step = next_other - other;
    ++count;
  }
};

// One direction of a convolution.  of_out has the inputs of each output, of_in the reverse.
struct ConvolutionAxis {
  ConvolutionAxis(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation,
                  int64_t padding)
      : of_out(static_cast<size_t>(out)), of_in(static_cast<size_t>(in)) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t tap = 0; tap < kernel; ++tap) {
        const int64_t i = o * stride + tap * dilation - padding;
        if (0 <= i && i < in) of_out[o].Add(tap, i);
      }
    }
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t tap = 0; tap < kernel; ++tap) {
        const int64_t begin = i + padding - tap * dilation;
        if (begin >= 0 && begin % stride == 0 && begin / stride < out) {
          of_in[i].Add(tap, begin / stride);
        }
      }
    }
  }

  std::vector<Reach> of_out, of_in;
};

// Visits the rows of one image, numbered through all images, and for each of their pixels those of
// the other image.
struct DepthwiseWalk {
  const Reach* rows;
  const Reach* columns;
  int64_t h, w, other_h, other_w, c, kernel_w;

  int64_t OtherPixel(int64_t row) const {
    return (row / h * other_h + rows[row % h].other) * other_w;
  }

  // Calls visit(offset of the tap's weights, offset of the other pixel from the first), tap by tap.
  template <typename Visit>
  void ForEachTap(const Reach& rows_of, const Reach& columns_of, const Visit& visit) const {
    int64_t weight = (rows_of.tap * kernel_w + columns_of.tap) * c, pixel = columns_of.other * c;
    for (int64_t row = 0; row < rows_of.count; ++row) {
      for (int64_t column = 0; column < columns_of.count; ++column) {
        visit(weight + column * columns_of.tap_step * c,
              pixel + column * columns_of.other_step * c);
      }
      weight += rows_of.tap_step * kernel_w * c;
      pixel += rows_of.other_step * other_w * c;
    }
  }
};

// The walks of a convolution over its outputs and over its inputs, valid as long as this object.
class Walks {
 public:
  // True if the walks along an axis are found in milliseconds, as for all real images.
  static bool IsShort(int64_t in, int64_t out, int64_t kernel) {
    constexpr double kMostSteps = 1 << 22;
    return (static_cast<double>(in) + static_cast<double>(out)) * static_cast<double>(kernel) <=
           kMostSteps;
  }

  // Precondition: IsShort for both axes.
  explicit Walks(const Conv2dSpec& spec)
      : spec_(spec),
        rows_(spec.h, spec.out_h(), spec.window.kernel_h, spec.window.stride_h,
              spec.window.dilation_h, spec.window.padding_top),
        columns_(spec.w, spec.out_w(), spec.window.kernel_w, spec.window.stride_w,
                 spec.window.dilation_w, spec.window.padding_left) {}

  DepthwiseWalk OverOutputs() const {
    return {rows_.of_out.data(),
            columns_.of_out.data(),
            spec_.out_h(),
            spec_.out_w(),
            spec_.h,
            spec_.w,
            spec_.c,
            spec_.window.kernel_w};
  }
  DepthwiseWalk OverInputs() const {
    return {rows_.of_in.data(), columns_.of_in.data(), spec_.h, spec_.w,
            spec_.out_h(),      spec_.out_w(),         spec_.c, spec_.window.kernel_w};
  }

 private:
  const Conv2dSpec spec_;
  const ConvolutionAxis rows_, columns_;
};

}  // namespace gyre
