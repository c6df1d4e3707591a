// oneDNN 2.6's own pointwise convolutions lose a third of their rate on images of few pixels, and
// reorder the weights for each backward pass.  Of strided images the pixels that count are gathered
// in scratch.
//
// Letters: P is the pixels of the output, C channels, F filters.  Weights are stored [F, C], or
// [C, F] where F is larger: the gradient's product is fastest with long rows.
#include "engine/runtime/primitives/onednn/pointwise.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/runtime/math.h"
#include "engine/runtime/primitives/onednn/onednn.h"

namespace gyre {
namespace {

constexpr std::string_view kChannelsFirst = "channels,filters";

bool ChannelsFirst(const Conv2dSpec& spec) { return spec.filters > spec.c; }

// What the three passes multiply; null: not asked for.
struct PointwiseProducts {
  std::unique_ptr<Gemm> forward, data, weights;
};

class Pointwise : public Conv2d {
 public:
  Pointwise(const Conv2dSpec& spec, int threads, PointwiseProducts products)
      : Conv2d({.bytes = static_cast<size_t>(spec.weights()) * SizeOf(spec.dtype),
                .tag = std::string(ChannelsFirst(spec) ? kChannelsFirst : "")}),
        spec_(spec),
        threads_(threads),
        products_(std::move(products)),
        channels_first_(ChannelsFirst(spec)),
        element_(SizeOf(spec.dtype)),
        pixels_(spec.n * spec.out_h() * spec.out_w()),
        strided_(spec.window.stride_h > 1 || spec.window.stride_w > 1),
        gathered_bytes_(
            strided_ ? RoundUp<size_t>(static_cast<size_t>(pixels_ * spec.c) * element_, 64) : 0) {}

  size_t scratch_bytes() const override {
    size_t bytes = 0;
    for (const auto* gemm : {&products_.forward, &products_.data, &products_.weights}) {
      if (*gemm) bytes = std::max(bytes, (*gemm)->scratch_bytes());
    }
    return gathered_bytes_ + bytes;
  }

  // y[P, F] = x[P, C] weights[C, F].
  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void*, void* y,
                       void* scratch) const override {
    if (pixels_ == 0) return absl::OkStatus();
    RETURN_IF_ERROR(Gather(stream, x, scratch));
    RETURN_IF_ERROR(Multiply(stream, *products_.forward, Pixels(x, scratch), weights, y, scratch));
    if (spec_.activation == Activation::kNone) return absl::OkStatus();
    return Enqueue(stream, [=, this] {
      ActivateInPlace(spec_.activation, spec_.dtype, pixels_ * spec_.filters, y);
    });
  }

  // dx[P, C] = dy[P, F] weights[C, F]^T.
  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void* scratch) const override {
    if (pixels_ == 0) return absl::OkStatus();
    void* const to = strided_ ? scratch : dx;
    RETURN_IF_ERROR(Multiply(stream, *products_.data, dy, weights, to, scratch));
    return strided_ ? Scatter(stream, scratch, dx) : absl::OkStatus();
  }

  // dweights[C, F] = x[P, C]^T dy[P, F], or its transpose.
  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights, void*,
                               void* scratch) const override {
    if (pixels_ == 0) {
      return Enqueue(stream, [=, this] { std::memset(dweights, 0, layout_.bytes); });
    }
    RETURN_IF_ERROR(Gather(stream, x, scratch));
    const void *left = Pixels(x, scratch), *right = dy;
    if (!channels_first_) std::swap(left, right);
    return Multiply(stream, *products_.weights, left, right, dweights, scratch);
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
    return stream.Call([run = std::move(run), threads = threads_] {
      const ScopedThreads scope(threads);
      run();
      return absl::OkStatus();
    });
  }

  // A product's own scratch comes after the gathered pixels.
  absl::Status Multiply(Stream& stream, const Gemm& gemm, const void* a, const void* b, void* c,
                        void* scratch) const {
    return gemm.Run(stream, a, b, nullptr, c, static_cast<std::byte*>(scratch) + gathered_bytes_);
  }

  // to[columns, rows] = from[rows, columns]^T where weights are not as files have them, else a
  // copy.
  void Turn(const void* from, int64_t rows, int64_t columns, void* to) const {
    if (!channels_first_) {
      std::memcpy(to, from, layout_.bytes);
    } else if (spec_.dtype == DType::kF32) {
      Transpose(static_cast<const uint32_t*>(from), rows, columns, static_cast<uint32_t*>(to));
    } else {
      Transpose(static_cast<const uint16_t*>(from), rows, columns, static_cast<uint16_t*>(to));
    }
  }
  template <typename Bits>
  static void Transpose(const Bits* from, int64_t rows, int64_t columns, Bits* to) {
    for (int64_t i = 0; i < rows * columns; ++i) to[i % columns * rows + i / columns] = from[i];
  }

  // The pixels of x that the window comes to, one after another.
  const void* Pixels(const void* x, const void* scratch) const { return strided_ ? scratch : x; }
  absl::Status Gather(Stream& stream, const void* x, void* scratch) const {
    if (!strided_) return absl::OkStatus();
    return Enqueue(stream, [=, this] {
      const int64_t rows = spec_.n * spec_.out_h(), columns = spec_.out_w();
      const size_t pixel = static_cast<size_t>(spec_.c) * element_;
      const auto* const from = static_cast<const std::byte*>(x);
      auto* const to = static_cast<std::byte*>(scratch);
#pragma omp parallel for
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t image = row / spec_.out_h(), h = row % spec_.out_h() * spec_.window.stride_h;
        for (int64_t column = 0; column < columns; ++column) {
          const int64_t w = column * spec_.window.stride_w;
          std::memcpy(to + static_cast<size_t>(row * columns + column) * pixel,
                      from + static_cast<size_t>((image * spec_.h + h) * spec_.w + w) * pixel,
                      pixel);
        }
      }
    });
  }

  // The other way; 0 for the pixels in between.
  absl::Status Scatter(Stream& stream, const void* scratch, void* dx) const {
    return Enqueue(stream, [=, this] {
      const int64_t rows = spec_.n * spec_.h;
      const size_t pixel = static_cast<size_t>(spec_.c) * element_;
      const auto* const from = static_cast<const std::byte*>(scratch);
      auto* const all = static_cast<std::byte*>(dx);
#pragma omp parallel for
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t image = row / spec_.h, h = row % spec_.h;
        for (int64_t w = 0; w < spec_.w; ++w) {
          std::byte* const to = all + static_cast<size_t>(row * spec_.w + w) * pixel;
          if (h % spec_.window.stride_h != 0 || w % spec_.window.stride_w != 0) {
            std::memset(to, 0, pixel);
            continue;
          }
          const int64_t out = image * spec_.out_h() + h / spec_.window.stride_h;
          const int64_t at = out * spec_.out_w() + w / spec_.window.stride_w;
          std::memcpy(to, from + static_cast<size_t>(at) * pixel, pixel);
        }
      }
    });
  }

  const Conv2dSpec spec_;
  const int threads_;
  const PointwiseProducts products_;
  const bool channels_first_;
  const size_t element_;
  const int64_t pixels_;  // of the output
  const bool strided_;
  const size_t gathered_bytes_;
};

}  // namespace

bool IsPointwise(const Conv2dSpec& spec) {
  const Window2d& w = spec.window;
  const bool one_pixel =
      std::max(w.kernel_h, w.kernel_w) == 1 &&
      std::max({w.padding_top, w.padding_bottom, w.padding_left, w.padding_right}) == 0;
  return one_pixel && spec.groups == 1 && !spec.bias &&
         (spec.weight_layout.empty() ||
          (spec.weight_layout == kChannelsFirst && ChannelsFirst(spec)));
}

absl::StatusOr<std::unique_ptr<Conv2d>> PreparePointwise(const Conv2dSpec& spec, int threads,
                                                         const PrimitiveLibrary& products) {
  // A batch of nothing is prepared as one of 1 pixel and never run.
  const int64_t pixels = std::max<int64_t>(1, spec.n * spec.out_h() * spec.out_w());
  const bool channels_first = ChannelsFirst(spec);
  const auto prepare = [&](GemmSpec gemm) {
    gemm.dtype = spec.dtype;
    return products.Prepare(gemm);
  };
  PointwiseProducts all;
  ASSIGN_OR_RETURN(
      all.forward,
      prepare({.m = pixels, .n = spec.filters, .k = spec.c, .transpose_b = !channels_first}));
  if (spec.train && spec.data_gradient) {
    ASSIGN_OR_RETURN(
        all.data,
        prepare({.m = pixels, .n = spec.c, .k = spec.filters, .transpose_b = channels_first}));
  }
  if (spec.train) {
    ASSIGN_OR_RETURN(all.weights, prepare({.m = std::min(spec.c, spec.filters),
                                           .n = std::max(spec.c, spec.filters),
                                           .k = pixels,
                                           .transpose_a = true}));
  }
  return std::make_unique<Pointwise>(spec, threads, std::move(all));
}

}  // namespace gyre
