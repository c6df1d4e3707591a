// The reference pooling.  Forward runs over output rows, backward over images: windows of one image
// may overlap, and their gradients must be added in one order.
#include <algorithm>

#include "engine/runtime/primitives/blocked/blocked.h"

namespace gyre {
namespace {

template <typename T>
class BlockedPool2d : public Pool2d {
 public:
  explicit BlockedPool2d(const Pool2dSpec& spec) : spec_(spec) {}

  size_t saved_bytes() const override {
    if (!saves()) return 0;
    return static_cast<size_t>(spec_.n * spec_.out_h() * spec_.out_w() * spec_.c) * sizeof(int32_t);
  }

  absl::Status Forward(Stream& stream, const void* x, void* y, void* saved) const override {
    return stream.Call([=, this] {
      const int64_t out_h = spec_.out_h(), out_w = spec_.out_w();
#pragma omp parallel for
      for (int64_t row = 0; row < spec_.n * out_h; ++row) {
        const T* image = static_cast<const T*>(x) + row / out_h * image_elements();
        for (int64_t column = 0; column < out_w; ++column) {
          const Window window = At(row % out_h, column);
          const int64_t first = (row * out_w + column) * spec_.c;
          T* out = static_cast<T*>(y) + first;
          if (spec_.kind == PoolKind::kMax) {
            Max(window, image, out, saves() ? static_cast<int32_t*>(saved) + first : nullptr);
          } else {
            Average(window, image, out);
          }
        }
      }
      return absl::OkStatus();
    });
  }

  absl::Status Backward(Stream& stream, const void* dy, const void* saved,
                        void* dx) const override {
    return stream.Call([=, this] {
      const int64_t out_h = spec_.out_h(), out_w = spec_.out_w();
#pragma omp parallel for
      for (int64_t n = 0; n < spec_.n; ++n) {
        T* image = static_cast<T*>(dx) + n * image_elements();
        std::fill_n(image, image_elements(), T{0});
        for (int64_t row = 0; row < out_h; ++row) {
          for (int64_t column = 0; column < out_w; ++column) {
            const int64_t first = ((n * out_h + row) * out_w + column) * spec_.c;
            const T* out = static_cast<const T*>(dy) + first;
            if (spec_.kind == PoolKind::kMax) {
              const int32_t* pixels = static_cast<const int32_t*>(saved) + first;
              for (int64_t c = 0; c < spec_.c; ++c) image[pixels[c] * spec_.c + c] += out[c];
            } else {
              SpreadAverage(At(row, column), out, image);
            }
          }
        }
      }
      return absl::OkStatus();
    });
  }

 private:
  // The part of a window inside the image; never empty in a valid spec.
  struct Window {
    int64_t top, bottom, left, right;
    int64_t pixels() const { return (bottom - top) * (right - left); }
  };

  Window At(int64_t out_row, int64_t out_column) const {
    const int64_t top = out_row * spec_.stride_h - spec_.padding_top;
    const int64_t left = out_column * spec_.stride_w - spec_.padding_left;
    return {.top = std::max<int64_t>(top, 0),
            .bottom = std::min(top + spec_.kernel_h, spec_.h),
            .left = std::max<int64_t>(left, 0),
            .right = std::min(left + spec_.kernel_w, spec_.w)};
  }

  // `pixels`: where each maximum was, as row * w + column; may be null.
  void Max(const Window& window, const T* image, T* y, int32_t* pixels) const {
    const int64_t first_pixel = window.top * spec_.w + window.left;
    std::copy_n(image + first_pixel * spec_.c, spec_.c, y);
    if (pixels != nullptr) std::fill_n(pixels, spec_.c, static_cast<int32_t>(first_pixel));
    for (int64_t row = window.top; row < window.bottom; ++row) {
      for (int64_t column = window.left; column < window.right; ++column) {
        const int64_t pixel = row * spec_.w + column;
        const T* x = image + pixel * spec_.c;
        for (int64_t c = 0; c < spec_.c; ++c) {
          if (x[c] > y[c]) {
            y[c] = x[c];
            if (pixels != nullptr) pixels[c] = static_cast<int32_t>(pixel);
          }
        }
      }
    }
  }

  void Average(const Window& window, const T* image, T* y) const {
    std::fill_n(y, spec_.c, T{0});
    for (int64_t row = window.top; row < window.bottom; ++row) {
      for (int64_t column = window.left; column < window.right; ++column) {
        const T* x = image + (row * spec_.w + column) * spec_.c;
        for (int64_t c = 0; c < spec_.c; ++c) y[c] += x[c];
      }
    }
    const T pixels = static_cast<T>(window.pixels());
    for (int64_t c = 0; c < spec_.c; ++c) y[c] /= pixels;
  }

  void SpreadAverage(const Window& window, const T* dy, T* image) const {
    const T pixels = static_cast<T>(window.pixels());
    for (int64_t row = window.top; row < window.bottom; ++row) {
      for (int64_t column = window.left; column < window.right; ++column) {
        T* dx = image + (row * spec_.w + column) * spec_.c;
        for (int64_t c = 0; c < spec_.c; ++c) dx[c] += dy[c] / pixels;
      }
    }
  }

  bool saves() const { return spec_.kind == PoolKind::kMax && spec_.train; }
  int64_t image_elements() const { return spec_.h * spec_.w * spec_.c; }

  const Pool2dSpec spec_;
};

}  // namespace

std::unique_ptr<Pool2d> PrepareBlockedPool2d(const Pool2dSpec& spec) {
  return VisitComputeType(spec.dtype, [&]<typename T>() -> std::unique_ptr<Pool2d> {
    return std::make_unique<BlockedPool2d<T>>(spec);
  });
}

}  // namespace gyre
