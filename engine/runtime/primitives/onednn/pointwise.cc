// Convolution by a window of one pixel as three products of whole arrays.  oneDNN 2.6's own lose a
// third of their rate on images of few pixels, and reorder the weights for each backward pass.  Of
// strided images the pixels that count are gathered in scratch.
//
// Letters: P is the pixels of the output, C channels, F filters.  Weights are stored [F, C], or
// [C, F] where F is larger: the gradient's product is fastest with long rows.
#include <algorithm>
#include <bit>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/runtime/primitives/onednn/onednn.h"

namespace gyre {
namespace {

// With fewer channels oneDNN's convolution is as fast, and with a bias, which it adds and sums in
// passing.  So it is where pixels do not lie a power of two apart, and so in the same lines of
// caches.
constexpr int64_t kFew = 64, kMany = 256;

constexpr std::string_view kChannelsFirst = "channels,filters";

bool ChannelsFirst(const Conv2dSpec& spec) { return spec.filters > spec.c; }

class Pointwise : public Conv2d {
 public:
  Pointwise(const OneDnnContext& context, const Conv2dSpec& spec)
      : context_(context),
        spec_(spec),
        what_(ToString(spec)),
        channels_first_(ChannelsFirst(spec)),
        layout_{.bytes = static_cast<size_t>(spec.weights()) * sizeof(float),
                .tag = std::string(channels_first_ ? kChannelsFirst : "")},
        pixels_(spec.n * spec.out_h() * spec.out_w()),
        strided_(spec.window.stride_h > 1 || spec.window.stride_w > 1) {}

  const WeightLayout& weight_layout() const override { return layout_; }
  size_t scratch_bytes() const override {
    return strided_ ? static_cast<size_t>(pixels_ * spec_.c) * sizeof(float) : 0;
  }

  // y[P, F] = x[P, C] weights[C, F].
  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void*, void* y,
                       void* scratch) const override {
    return Enqueue(stream, [=, this] {
      const Matrix pixels{Gathered(x, scratch), spec_.c};
      RETURN_IF_ERROR(Multiply(pixels_, spec_.filters, spec_.c, pixels, Weights(weights), y));
      ActivateInPlace(spec_.activation, spec_.dtype, pixels_ * spec_.filters, y);
      return absl::OkStatus();
    });
  }

  // dx[P, C] = dy[P, F] weights[C, F]^T.
  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void* scratch) const override {
    return Enqueue(stream, [=, this] {
      RETURN_IF_ERROR(Multiply(pixels_, spec_.c, spec_.filters, {dy, spec_.filters},
                               Weights(weights).Transposed(), strided_ ? scratch : dx));
      if (strided_) Scatter(static_cast<const float*>(scratch), static_cast<float*>(dx));
      return absl::OkStatus();
    });
  }

  // dweights[C, F] = x[P, C]^T dy[P, F], or its transpose.
  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights, void*,
                               void* scratch) const override {
    return Enqueue(stream, [=, this] {
      if (pixels_ == 0) {
        std::fill_n(static_cast<float*>(dweights), spec_.weights(), 0.0f);
        return absl::OkStatus();
      }
      Matrix left{Gathered(x, scratch), spec_.c}, right{dy, spec_.filters};
      if (!channels_first_) std::swap(left, right);
      return Multiply(left.columns, right.columns, pixels_, left.Transposed(), right, dweights);
    });
  }

  absl::Status Pack(const void* canonical, void* opaque) const override {
    Turn(canonical, spec_.filters, spec_.c, opaque);
    return absl::OkStatus();
  }
  absl::Status Unpack(const void* opaque, void* canonical) const override {
    Turn(opaque, spec_.c, spec_.filters, canonical);
    return absl::OkStatus();
  }

 private:
  template <typename Run>
  absl::Status Enqueue(Stream& stream, Run run) const {
    return stream.Call([run = std::move(run), this] {
      const ScopedThreads threads(context_.threads);
      return run();
    });
  }

  struct Matrix {
    const void* data;
    int64_t columns;  // of what is stored
    bool transposed = false;

    Matrix Transposed() const { return {data, columns, !transposed}; }
  };

  // [C, F].
  Matrix Weights(const void* weights) const {
    return {weights, channels_first_ ? spec_.filters : spec_.c, !channels_first_};
  }

  // c[m, n] = a[m, k] b[k, n].
  absl::Status Multiply(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b,
                        void* c) const {
    if (m == 0) return absl::OkStatus();
    const dnnl_status_t status =
        dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, /*alpha=*/1,
                   static_cast<const float*>(a.data), a.columns, static_cast<const float*>(b.data),
                   b.columns, /*beta=*/0, static_cast<float*>(c), n);
    if (status == dnnl_success) return absl::OkStatus();
    return OneDnnError(what_, dnnl::error(status, "dnnl_sgemm failed"));
  }

  // to[columns, rows] = from[rows, columns]^T where weights are not as files have them, else a
  // copy.
  void Turn(const void* from, int64_t rows, int64_t columns, void* to) const {
    const float* const source = static_cast<const float*>(from);
    float* const target = static_cast<float*>(to);
    for (int64_t i = 0; i < rows * columns; ++i) {
      target[channels_first_ ? i % columns * rows + i / columns : i] = source[i];
    }
  }

  // The pixels of x that the window comes to, one after another.
  const void* Gathered(const void* x, void* scratch) const {
    if (!strided_) return x;
    const int64_t rows = spec_.n * spec_.out_h(), columns = spec_.out_w(), c = spec_.c;
    const float* const from = static_cast<const float*>(x);
    float* const to = static_cast<float*>(scratch);
#pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t image = row / spec_.out_h(), h = row % spec_.out_h() * spec_.window.stride_h;
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t w = column * spec_.window.stride_w;
        std::copy_n(from + ((image * spec_.h + h) * spec_.w + w) * c, c,
                    to + (row * columns + column) * c);
      }
    }
    return to;
  }

  // The other way; 0 for the pixels in between.
  void Scatter(const float* from, float* dx) const {
    const int64_t rows = spec_.n * spec_.h, c = spec_.c;
#pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t image = row / spec_.h, h = row % spec_.h;
      for (int64_t w = 0; w < spec_.w; ++w) {
        float* const to = dx + (row * spec_.w + w) * c;
        if (h % spec_.window.stride_h != 0 || w % spec_.window.stride_w != 0) {
          std::fill_n(to, c, 0.0f);
          continue;
        }
        const int64_t out = image * spec_.out_h() + h / spec_.window.stride_h;
        std::copy_n(from + (out * spec_.out_w() + w / spec_.window.stride_w) * c, c, to);
      }
    }
  }

  const OneDnnContext context_;
  const Conv2dSpec spec_;
  const std::string what_;
  const bool channels_first_;
  const WeightLayout layout_;
  const int64_t pixels_;  // of the output
  const bool strided_;
};

}  // namespace

bool IsProduct(const Conv2dSpec& spec) {
  const Window2d& w = spec.window;
  const bool one_pixel =
      std::max(w.kernel_h, w.kernel_w) == 1 &&
      std::max({w.padding_top, w.padding_bottom, w.padding_left, w.padding_right}) == 0;
  return spec.dtype == DType::kF32 && one_pixel && spec.groups == 1 && !spec.bias &&
         std::min(spec.c, spec.filters) >= kFew && std::max(spec.c, spec.filters) >= kMany &&
         std::has_single_bit(static_cast<uint64_t>(spec.c)) &&
         std::has_single_bit(static_cast<uint64_t>(spec.filters)) &&
         (spec.weight_layout.empty() ||
          (spec.weight_layout == kChannelsFirst && ChannelsFirst(spec)));
}

std::unique_ptr<Conv2d> NewPointwise(const OneDnnContext& context, const Conv2dSpec& spec) {
  return std::make_unique<Pointwise>(context, spec);
}

}  // namespace gyre
