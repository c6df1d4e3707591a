// Depthwise convolution with the channels of a pixel as vectors: few products an element, so what
// counts is that images are read in the order in which they lie.  Weights are stored
// [taps, channels], a tap being one (kernel row, kernel column).
#include <algorithm>

#include "engine/runtime/math.h"
#include "engine/runtime/primitives/activation.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/blocked/depthwise_walk.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {
namespace {

constexpr std::string_view kLayout = "taps,channels";

// to[pixel] = the sum over its taps of weights[tap] * from[other pixel]: forward, and with the
// images exchanged the gradient of the data.
template <typename T>
struct SumOverTaps {
  DepthwiseWalk walk;
  const T* from;
  const T* weights;
  const T* bias;  // may be null
  Activation activation;
  T* to;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      const T* first = from + walk.OtherPixel(row) * walk.c;
      const Reach rows = walk.rows[row % walk.h];
      for (int64_t column = 0; column < walk.w; ++column) {
        const Reach columns = walk.columns[column];
        T* here = to + (row * walk.w + column) * walk.c;
        ForEachChunk(walk.c, [&]<int kCount>(int64_t c) {
          Chunk<kCount>(rows, columns, first + c, c, here + c);
        });
      }
    }
  }

  template <int kCount>
  void Chunk(const Reach& rows, const Reach& columns, const T* first, int64_t channel,
             T* here) const {
    T sum[kCount] = {};
    walk.ForEachTap(rows, columns, [&](int64_t weight, int64_t pixel) {
      const T *a = first + pixel, *b = weights + channel + weight;
#pragma omp simd
      for (int c = 0; c < kCount; ++c) sum[c] += a[c] * b[c];
    });
    if (bias != nullptr) {
#pragma omp simd
      for (int c = 0; c < kCount; ++c) sum[c] += bias[channel + c];
    }
#pragma omp simd
    for (int c = 0; c < kCount; ++c) here[c] = Activate(activation, sum[c]);
  }
};

// Gradients of weights are summed over runs of a row of outputs, then over slices of so many rows,
// then over the slices, in F64: short sums, cut without regard to threads.
constexpr int64_t kRun = 1024, kSliceRows = 16;

// Slices of rows of outputs.  Sums are of [taps + 1, channels], the last row for the bias; a slice
// has those of its current run and its own.
template <typename T>
struct SumDepthwiseSlices {
  DepthwiseWalk walk;
  int64_t rows, sums;
  const T* x;
  const T* dy;
  T* scratch;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t slice = begin; slice < end; ++slice) {
      T* const all = scratch + slice * 2 * sums;
      T* const of_row = all + sums;
      std::fill_n(all, sums, T{0});
      const int64_t last = std::min(rows, (slice + 1) * kSliceRows);
      for (int64_t row = slice * kSliceRows; row < last; ++row) {
        for (int64_t column = 0; column < walk.w; column += kRun) {
          std::fill_n(of_row, sums, T{0});
          SumRun(row, column, std::min(walk.w, column + kRun), of_row);
#pragma omp simd
          for (int64_t i = 0; i < sums; ++i) all[i] += of_row[i];
        }
      }
    }
  }

  void SumRun(int64_t row, int64_t begin, int64_t end, T* of_row) const {
    const T* first = x + walk.OtherPixel(row) * walk.c;
    const Reach rows_of = walk.rows[row % walk.h];
    for (int64_t column = begin; column < end; ++column) {
      const Reach columns_of = walk.columns[column];
      const T* gradient = dy + (row * walk.w + column) * walk.c;
      ForEachChunk(walk.c, [&]<int kCount>(int64_t c) {
        Chunk<kCount>(rows_of, columns_of, first + c, gradient + c, of_row + c);
      });
    }
  }

  template <int kCount>
  void Chunk(const Reach& rows_of, const Reach& columns_of, const T* first, const T* gradient,
             T* of_row) const {
    T dy_here[kCount];  // a store to the sums could otherwise seem to change it
    std::copy_n(gradient, kCount, dy_here);
    const auto add = [&](T* to, const T* from) {
#pragma omp simd
      for (int c = 0; c < kCount; ++c) to[c] += from[c];
    };
    walk.ForEachTap(rows_of, columns_of, [&](int64_t weight, int64_t pixel) {
      T product[kCount];
      const T* a = first + pixel;
#pragma omp simd
      for (int c = 0; c < kCount; ++c) product[c] = a[c] * dy_here[c];
      add(of_row + weight, product);
    });
    add(of_row + sums - walk.c, dy_here);
  }
};

// to[i] = the sum of the slices' sums first + i, in their order.
template <typename T>
struct AddDepthwiseSlices {
  int64_t slices, stride;
  const T* from;
  int64_t first;
  T* to;

  void operator()(int64_t begin, int64_t end) const {
    constexpr int64_t kAtOnce = 64;
    for (; begin < end; begin += kAtOnce) {
      const int64_t count = std::min(kAtOnce, end - begin);
      double totals[kAtOnce] = {};
      for (int64_t slice = 0; slice < slices; ++slice) {
        const T* of_slice = from + slice * stride + first + begin;
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) totals[i] += static_cast<double>(of_slice[i]);
      }
      std::copy_n(totals, count, to + begin);
    }
  }
};

template <typename T>
class Depthwise : public Conv2d {
 public:
  explicit Depthwise(const Conv2dSpec& spec)
      : Conv2d({.bytes = static_cast<size_t>(spec.weights()) * sizeof(T),
                .tag = std::string(kLayout)}),
        spec_(spec),
        walks_(spec) {}

  size_t scratch_bytes() const override {
    return spec_.train ? static_cast<size_t>(slices() * 2 * sums()) * sizeof(T) : 0;
  }

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void*) const override {
    return OnTeam(stream, out_rows(),
                  SumOverTaps<T>{walks_.OverOutputs(), static_cast<const T*>(x),
                                 static_cast<const T*>(weights),
                                 spec_.bias ? static_cast<const T*>(bias) : nullptr,
                                 spec_.activation, static_cast<T*>(y)});
  }

  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void*) const override {
    return OnTeam(stream, spec_.n * spec_.h,
                  SumOverTaps<T>{walks_.OverInputs(), static_cast<const T*>(dy),
                                 static_cast<const T*>(weights), nullptr, Activation::kNone,
                                 static_cast<T*>(dx)});
  }

  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights,
                               void* dbias, void* scratch) const override {
    T* const from = static_cast<T*>(scratch);
    RETURN_IF_ERROR(
        OnTeam(stream, slices(),
               SumDepthwiseSlices<T>{walks_.OverOutputs(), out_rows(), sums(),
                                     static_cast<const T*>(x), static_cast<const T*>(dy), from}));
    RETURN_IF_ERROR(
        OnTeam(stream, spec_.weights(),
               AddDepthwiseSlices<T>{slices(), 2 * sums(), from, 0, static_cast<T*>(dweights)}));
    if (!spec_.bias) return absl::OkStatus();
    return OnTeam(
        stream, spec_.c,
        AddDepthwiseSlices<T>{slices(), 2 * sums(), from, spec_.weights(), static_cast<T*>(dbias)});
  }

  absl::Status Pack(const void* canonical, void* opaque) const override {
    Transpose(spec_.c, static_cast<const T*>(canonical), static_cast<T*>(opaque));
    return absl::OkStatus();
  }
  absl::Status Unpack(const void* opaque, void* canonical) const override {
    Transpose(spec_.weights() / spec_.c, static_cast<const T*>(opaque), static_cast<T*>(canonical));
    return absl::OkStatus();
  }

 private:
  // rows: of `from`.
  void Transpose(int64_t rows, const T* from, T* to) const {
    const int64_t columns = spec_.weights() / rows;
    for (int64_t i = 0; i < spec_.weights(); ++i) to[i % columns * rows + i / columns] = from[i];
  }

  int64_t out_rows() const { return spec_.n * spec_.out_h(); }
  int64_t slices() const { return CeilDiv(out_rows(), kSliceRows); }
  int64_t sums() const { return spec_.weights() + spec_.c; }

  const Conv2dSpec spec_;
  const Walks walks_;
};

class DepthwiseLibrary : public PrimitiveLibrary {
 public:
  std::string_view name() const override { return "depthwise"; }

  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    // Fewer channels fill no vector.
    const bool depthwise = spec.groups == spec.c && spec.groups == spec.filters && spec.c >= 16;
    const bool layout = spec.weight_layout.empty() || spec.weight_layout == kLayout;
    if (!IsComputeType(spec.dtype) || !depthwise || !layout) return LeaveToOthers(spec);
    RETURN_IF_ERROR(Validate(spec));
    const Window2d& window = spec.window;
    if (!Walks::IsShort(spec.h, spec.out_h(), window.kernel_h) ||
        !Walks::IsShort(spec.w, spec.out_w(), window.kernel_w)) {
      return LeaveToOthers(spec);
    }
    return VisitComputeType(spec.dtype, [&]<typename T>() -> std::unique_ptr<Conv2d> {
      return std::make_unique<Depthwise<T>>(spec);
    });
  }
};

}  // namespace

std::unique_ptr<PrimitiveLibrary> NewDepthwiseLibrary() {
  return std::make_unique<DepthwiseLibrary>();
}

}  // namespace gyre
