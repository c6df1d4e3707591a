// The reference convolution: forward and backward data are a sum per element of what they
// make, so that nothing is added to by two threads; backward weights is a reduction.
#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/activation.h"
#include "engine/runtime/primitives/reference/reference.h"

namespace gyre {
namespace {

// y[i]: an output pixel's filter.
template <typename T>
struct ConvForward {
  using A = AccumulateType<T>;
  ConvGeometry g;
  Activation activation;
  const T* x;
  const T* weights;
  const T* bias;  // may be null
  T* y;

  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t filter = i % g.filters, pixel = i / g.filters;
    const int64_t top = pixel / g.out_w % g.out_h * g.window.stride_h - g.window.padding_top;
    const int64_t left = pixel % g.out_w * g.window.stride_w - g.window.padding_left;
    const int64_t taps = g.window.kernel_h * g.window.kernel_w;
    const T* image = x + pixel / (g.out_h * g.out_w) * g.h * g.w * g.c +
                     filter / g.group_filters * g.group_channels;
    const T* filter_weights = weights + filter * g.group_channels * taps;
    A sum = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t row = top + tap / g.window.kernel_w * g.window.dilation_h;
      const int64_t column = left + tap % g.window.kernel_w * g.window.dilation_w;
      if (row < 0 || row >= g.h || column < 0 || column >= g.w) continue;
      const T* from = image + (row * g.w + column) * g.c;
      for (int64_t channel = 0; channel < g.group_channels; ++channel) {
        sum += static_cast<A>(from[channel]) * static_cast<A>(filter_weights[channel * taps + tap]);
      }
    }
    if (bias != nullptr) sum += static_cast<A>(bias[filter]);
    y[i] = static_cast<T>(Activate(activation, sum));
  }
};

// dx[i]: an input pixel's channel, from dy of the output pixels that a tap carried it to.
template <typename T>
struct ConvBackwardData {
  using A = AccumulateType<T>;
  ConvGeometry g;
  const T* dy;
  const T* weights;
  T* dx;

  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t channel = i % g.c, pixel = i / g.c;
    const int64_t padded_row = pixel / g.w % g.h + g.window.padding_top;
    const int64_t padded_column = pixel % g.w + g.window.padding_left;
    const int64_t taps = g.window.kernel_h * g.window.kernel_w;
    const int64_t first_filter = channel / g.group_channels * g.group_filters;
    const T* image = dy + pixel / (g.h * g.w) * g.out_h * g.out_w * g.filters + first_filter;
    const T* channel_weights =
        weights + (first_filter * g.group_channels + channel % g.group_channels) * taps;
    A sum = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t top = padded_row - tap / g.window.kernel_w * g.window.dilation_h;
      const int64_t left = padded_column - tap % g.window.kernel_w * g.window.dilation_w;
      if (top < 0 || left < 0 || top % g.window.stride_h != 0 || left % g.window.stride_w != 0)
        continue;
      const int64_t row = top / g.window.stride_h, column = left / g.window.stride_w;
      if (row >= g.out_h || column >= g.out_w) continue;
      const T* from = image + (row * g.out_w + column) * g.filters;
      for (int64_t filter = 0; filter < g.group_filters; ++filter) {
        sum += static_cast<A>(from[filter]) *
               static_cast<A>(channel_weights[filter * g.group_channels * taps + tap]);
      }
    }
    dx[i] = static_cast<T>(sum);
  }
};

template <typename T>
class ReferenceConv2d : public Conv2d {
 public:
  explicit ReferenceConv2d(const Conv2dSpec& spec)
      : Conv2d({.bytes = static_cast<size_t>(spec.weights()) * sizeof(T), .tag = ""}),
        spec_(spec),
        geometry_(spec),
        out_pixels_(spec.n * spec.out_h() * spec.out_w()) {}

  size_t scratch_bytes() const override {
    if (!spec_.train || !spec_.bias) return 0;
    return ReduceColumnsScratch<ColumnSum<T>>(out_pixels_, spec_.filters);
  }

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void*) const override {
    return ForEach(stream, out_pixels_ * spec_.filters,
                   ConvForward<T>{.g = geometry_,
                                  .activation = spec_.activation,
                                  .x = static_cast<const T*>(x),
                                  .weights = static_cast<const T*>(weights),
                                  .bias = spec_.bias ? static_cast<const T*>(bias) : nullptr,
                                  .y = static_cast<T*>(y)});
  }

  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void*) const override {
    return ForEach(stream, spec_.n * spec_.h * spec_.w * spec_.c,
                   ConvBackwardData<T>{geometry_, static_cast<const T*>(dy),
                                       static_cast<const T*>(weights), static_cast<T*>(dx)});
  }

  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights,
                               void* dbias, void* scratch) const override {
    RETURN_IF_ERROR(ForEachRow(stream, spec_.weights(), out_pixels_,
                               WeightGradient<T>{{},
                                                 geometry_,
                                                 static_cast<const T*>(x),
                                                 static_cast<const T*>(dy),
                                                 static_cast<T*>(dweights)}));
    if (!spec_.bias) return absl::OkStatus();
    return ReduceColumns(
        stream, out_pixels_, spec_.filters,
        ColumnSum<T>{{}, spec_.filters, static_cast<const T*>(dy), static_cast<T*>(dbias)},
        scratch);
  }

 private:
  const Conv2dSpec spec_;
  const ConvGeometry geometry_;
  const int64_t out_pixels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareReferenceConv2d(const Conv2dSpec& spec) {
  if (!spec.weight_layout.empty()) {
    return absl::UnimplementedError(
        absl::StrCat(ToString(spec), ": the reference knows canonical weights only"));
  }
  return VisitReal(spec.dtype, [&]<typename T>() -> std::unique_ptr<Conv2d> {
    return std::make_unique<ReferenceConv2d<T>>(spec);
  });
}

}  // namespace gyre
