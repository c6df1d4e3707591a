// The blocked convolution: its three passes are matrix products whose operands are read straight
// from images and canonical weights.
//
// Letters: a pixel is one (n, h, w); a tap is one (kernel row, kernel column); CG and FG are the
// channels and filters of one group.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/column_sum.h"
#include "engine/runtime/primitives/activation.h"
#include "engine/runtime/primitives/blocked/blocked.h"
#include "engine/runtime/primitives/blocked/blocked_gemm.h"

namespace gyre {
namespace {

template <typename T>
class BlockedConv2d : public Conv2d {
 public:
  explicit BlockedConv2d(const Conv2dSpec& spec)
      : Conv2d({.bytes = static_cast<size_t>(spec.weights()) * sizeof(T), .tag = ""}),
        spec_(spec),
        group_channels_(spec.c / spec.groups),
        group_filters_(spec.filters / spec.groups),
        taps_(spec.window.kernel_h * spec.window.kernel_w) {}

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void*) const override {
    return stream.Call([=, this] {
      for (int64_t g = 0; g < spec_.groups; ++g) {
        ForwardGroup(g, static_cast<const T*>(x), static_cast<const T*>(weights),
                     static_cast<const T*>(bias), static_cast<T*>(y));
      }
      return absl::OkStatus();
    });
  }

  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void*) const override {
    return stream.Call([=, this] {
      for (int64_t g = 0; g < spec_.groups; ++g) {
        BackwardDataGroup(g, static_cast<const T*>(dy), static_cast<const T*>(weights),
                          static_cast<T*>(dx));
      }
      return absl::OkStatus();
    });
  }

  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights,
                               void* dbias, void*) const override {
    RETURN_IF_ERROR(stream.Call([=, this] {
      for (int64_t g = 0; g < spec_.groups; ++g) {
        BackwardWeightsGroup(g, static_cast<const T*>(x), static_cast<const T*>(dy),
                             static_cast<T*>(dweights));
      }
      return absl::OkStatus();
    }));
    if (!spec_.bias) return absl::OkStatus();
    return ReduceColumns(
        stream, out_pixels(), spec_.filters,
        ColumnSum<T>{{}, spec_.filters, static_cast<const T*>(dy), static_cast<T*>(dbias)});
  }

 private:
  // y[pixel, filter] = patches[pixel, (tap, channel)] weights[(tap, channel), filter].
  void ForwardGroup(int64_t g, const T* x, const T* weights, const T* bias, T* y) const {
    const int64_t first_filter = g * group_filters_;
    BlockedGemm<T>(
        out_pixels(), group_filters_, taps_ * group_channels_,
        [=, this](int64_t pixel, int64_t k0, int64_t count, T* to) {
          ReadPatch(x, g, pixel, k0, count, to);
        },
        [=, this](int64_t k, int64_t filter0, int64_t count, T* to) {
          const int64_t tap = k / group_channels_, channel = k % group_channels_;
          const T* from = weights + WeightIndex(first_filter + filter0, channel, tap);
          for (int64_t i = 0; i < count; ++i) to[i] = from[i * group_channels_ * taps_];
        },
        [=, this](int64_t pixel, int64_t filter0, int64_t count, const T* from) {
          const int64_t filter = first_filter + filter0;
          T* to = y + pixel * spec_.filters + filter;
          for (int64_t i = 0; i < count; ++i) {
            to[i] = Activate(spec_.activation, spec_.bias ? from[i] + bias[filter + i] : from[i]);
          }
        });
  }

  // dx[pixel, channel] = reached[pixel, (tap, filter)] weights[(tap, filter), channel], where
  // `reached` holds dy of the output pixels that a tap carried the input pixel to.
  void BackwardDataGroup(int64_t g, const T* dy, const T* weights, T* dx) const {
    const int64_t first_filter = g * group_filters_;
    BlockedGemm<T>(
        spec_.n * spec_.h * spec_.w, group_channels_, taps_ * group_filters_,
        [=, this](int64_t pixel, int64_t k0, int64_t count, T* to) {
          ReadReached(dy, g, pixel, k0, count, to);
        },
        [=, this](int64_t k, int64_t channel0, int64_t count, T* to) {
          const int64_t tap = k / group_filters_, filter = k % group_filters_;
          const T* from = weights + WeightIndex(first_filter + filter, channel0, tap);
          for (int64_t i = 0; i < count; ++i) to[i] = from[i * taps_];
        },
        [=, this](int64_t pixel, int64_t channel0, int64_t count, const T* from) {
          std::copy_n(from, count, dx + pixel * spec_.c + g * group_channels_ + channel0);
        });
  }

  // dweights[filter, (tap, channel)] = dy[pixel, filter]^T patches[pixel, (tap, channel)].
  void BackwardWeightsGroup(int64_t g, const T* x, const T* dy, T* dweights) const {
    const int64_t first_filter = g * group_filters_;
    BlockedGemm<T>(
        group_filters_, taps_ * group_channels_, out_pixels(),
        [=, this](int64_t filter, int64_t pixel0, int64_t count, T* to) {
          const T* from = dy + pixel0 * spec_.filters + first_filter + filter;
          for (int64_t i = 0; i < count; ++i) to[i] = from[i * spec_.filters];
        },
        [=, this](int64_t pixel, int64_t k0, int64_t count, T* to) {
          ReadPatch(x, g, pixel, k0, count, to);
        },
        [=, this](int64_t filter, int64_t k0, int64_t count, const T* from) {
          for (int64_t i = 0; i < count; ++i) {
            const int64_t tap = (k0 + i) / group_channels_, channel = (k0 + i) % group_channels_;
            dweights[WeightIndex(first_filter + filter, channel, tap)] = from[i];
          }
        });
  }

  // Channels [k0, k0 + count) of the patch of x under an output pixel, counted tap by tap; zeros
  // where a tap lies in the padding.
  void ReadPatch(const T* x, int64_t g, int64_t pixel, int64_t k0, int64_t count, T* to) const {
    const int64_t out_h = spec_.out_h(), out_w = spec_.out_w();
    const int64_t image = pixel / (out_h * out_w);
    const int64_t top = pixel / out_w % out_h * spec_.window.stride_h - spec_.window.padding_top;
    const int64_t left = pixel % out_w * spec_.window.stride_w - spec_.window.padding_left;
    ForEachTap(
        k0, count, group_channels_, to, [&](int64_t kernel_row, int64_t kernel_column) -> const T* {
          const int64_t row = top + kernel_row * spec_.window.dilation_h;
          const int64_t column = left + kernel_column * spec_.window.dilation_w;
          if (row < 0 || row >= spec_.h || column < 0 || column >= spec_.w) return nullptr;
          return x + ((image * spec_.h + row) * spec_.w + column) * spec_.c + g * group_channels_;
        });
  }

  // Likewise the filters of dy at the output pixels whose patches hold an input pixel.
  void ReadReached(const T* dy, int64_t g, int64_t pixel, int64_t k0, int64_t count, T* to) const {
    const int64_t out_h = spec_.out_h(), out_w = spec_.out_w();
    const int64_t image = pixel / (spec_.h * spec_.w);
    const int64_t padded_row = pixel / spec_.w % spec_.h + spec_.window.padding_top;
    const int64_t padded_column = pixel % spec_.w + spec_.window.padding_left;
    ForEachTap(
        k0, count, group_filters_, to, [&](int64_t kernel_row, int64_t kernel_column) -> const T* {
          const int64_t top = padded_row - kernel_row * spec_.window.dilation_h;
          const int64_t left = padded_column - kernel_column * spec_.window.dilation_w;
          if (top < 0 || left < 0 || top % spec_.window.stride_h != 0 ||
              left % spec_.window.stride_w != 0) {
            return nullptr;
          }
          const int64_t row = top / spec_.window.stride_h, column = left / spec_.window.stride_w;
          if (row >= out_h || column >= out_w) return nullptr;
          return dy + ((image * out_h + row) * out_w + column) * spec_.filters + g * group_filters_;
        });
  }

  // Writes elements [k0, k0 + count) of the concatenation, over taps, of `length` elements at
  // find(kernel row, kernel column), or of zeros where that is null.
  template <typename Find>
  void ForEachTap(int64_t k0, int64_t count, int64_t length, T* to, const Find& find) const {
    int64_t tap = k0 / length, begin = k0 % length;
    int64_t kernel_row = tap / spec_.window.kernel_w, kernel_column = tap % spec_.window.kernel_w;
    while (count > 0) {
      const int64_t piece = std::min(length - begin, count);
      if (const T* from = find(kernel_row, kernel_column)) {
        std::copy_n(from + begin, piece, to);
      } else {
        std::fill_n(to, piece, T{0});
      }
      to += piece;
      count -= piece;
      begin = 0;
      if (++kernel_column == spec_.window.kernel_w) {
        kernel_column = 0;
        ++kernel_row;
      }
    }
  }

  int64_t out_pixels() const { return spec_.n * spec_.out_h() * spec_.out_w(); }
  int64_t WeightIndex(int64_t filter, int64_t channel, int64_t tap) const {
    return (filter * group_channels_ + channel) * taps_ + tap;
  }

  const Conv2dSpec spec_;
  const int64_t group_channels_, group_filters_, taps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareBlockedConv2d(const Conv2dSpec& spec) {
  if (!spec.weight_layout.empty()) {
    return absl::UnimplementedError(
        absl::StrCat(ToString(spec), ": the reference knows canonical weights only"));
  }
  return VisitComputeType(spec.dtype, [&]<typename T>() -> std::unique_ptr<Conv2d> {
    return std::make_unique<BlockedConv2d<T>>(spec);
  });
}

}  // namespace gyre
