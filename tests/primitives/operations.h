// operations.h: runs one prepared operation on a device from host values to host values, which is
// all that the tests of primitives want.  Every buffer starts as NaNs, so that what is read before
// it is written shows, and ends in a canary, so that a byte too many does.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

#if defined(__SANITIZE_THREAD__)
inline constexpr int kManyThreads = 1;  // libgomp's own hand-overs look like races, see main.cc
#else
inline constexpr int kManyThreads = 2;
#endif

// The value, which the test cannot do without.
template <typename T>
T Get(absl::StatusOr<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.status();
    throw std::runtime_error(std::string(result.status().message()));
  }
  return *std::move(result);
}

inline void Check(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

// A Primitives seen as one library, for the helpers that run operations.
class Chosen : public PrimitiveLibrary {
 public:
  explicit Chosen(const Primitives& primitives) : primitives_(primitives) {}
  std::string_view name() const override { return "chosen"; }
  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    return primitives_.Prepare(spec);
  }
  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    return primitives_.Prepare(spec);
  }
  absl::StatusOr<std::unique_ptr<Pool2d>> Prepare(const Pool2dSpec& spec) const override {
    return primitives_.Prepare(spec);
  }

 private:
  const Primitives& primitives_;
};

// A device with one stream.
class Rig {
 public:
  explicit Rig(std::shared_ptr<Device> device)
      : device_(std::move(device)), stream_(Get(device_->NewStream())) {}
  explicit Rig(int threads, DeviceKind kind = DeviceKind::kCpu)
      : Rig(kind == DeviceKind::kSim ? NewSimDevice({.threads = threads})
                                     : NewCpuDevice({.threads = threads})) {}

  Device& device() { return *device_; }

  Stream& stream() { return *stream_; }

  // A piece of device memory.
  class Bytes {
   public:
    Bytes(Rig& rig, size_t bytes)
        : rig_(rig),
          bytes_(bytes),
          buffer_(Get(Buffer::Allocate(*rig.device_, MemoryKind::kDevice, bytes + kCanary))) {
      const std::vector<std::byte> fill(bytes + kCanary, kFill);
      rig_.Copy(buffer_.data(), fill.data(), fill.size());
    }
    template <typename T>
    Bytes(Rig& rig, const std::vector<T>& values) : Bytes(rig, values.size() * sizeof(T)) {
      rig_.Copy(buffer_.data(), values.data(), bytes_);
    }
    ~Bytes() {
      std::vector<std::byte> canary(kCanary);
      rig_.Copy(canary.data(), buffer_.data() + bytes_, kCanary);
      EXPECT_EQ(canary, std::vector<std::byte>(kCanary, kFill)) << "written beyond " << bytes_;
    }

    void* data() const { return buffer_.data(); }

    template <typename T>
    std::vector<T> Read() const {
      std::vector<T> values(bytes_ / sizeof(T));
      rig_.Copy(values.data(), buffer_.data(), bytes_);
      return values;
    }

   private:
    static constexpr size_t kCanary = 256;
    static constexpr std::byte kFill{0xFF};  // a NaN in every floating-point type

    Rig& rig_;
    const size_t bytes_;
    Buffer buffer_;
  };

 private:
  void Copy(void* to, const void* from, size_t bytes) {
    Check(stream_->Copy(to, from, bytes));
    Check(stream_->Synchronize());
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

using Random = std::mt19937_64;

inline int64_t Pick(Random& random, std::initializer_list<int64_t> choices) {
  return choices.begin()[random() % choices.size()];
}

// Floats in [-1, 1], rounded to T: F32 and F64 runs see the same numbers.
template <typename T>
std::vector<T> RandomValues(Random& random, int64_t count) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = static_cast<T>(uniform(random));
  return values;
}

template <typename To, typename From>
std::vector<To> Convert(const std::vector<From>& values) {
  return std::vector<To>(values.begin(), values.end());
}

template <typename T>
std::vector<T> Absolute(std::vector<T> values) {
  for (T& value : values) value = static_cast<T>(std::abs(value));
  return values;
}

// |got - want| <= relative * magnitude, elementwise, but for what lies below the smallest number of
// F16.  magnitude: the same operation on absolute values, which is what rounding errors of a sum
// are relative to.
template <typename T>
void ExpectClose(const std::vector<T>& got, const std::vector<double>& want,
                 const std::vector<double>& magnitude, double relative, const std::string& what) {
  constexpr double kUnderflow = std::is_same_v<T, Half> ? 0x1p-25 : 0;
  ASSERT_EQ(got.size(), want.size()) << what;
  ASSERT_EQ(got.size(), magnitude.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    ASSERT_LE(error, relative * magnitude[i] + kUnderflow)
        << what << " at " << i << ": " << static_cast<double>(got[i]) << " instead of " << want[i];
  }
}

// Elements of each operand from its first to its last one.
struct GemmSpans {
  explicit GemmSpans(const GemmSpec& s) {
    const auto span = [&](bool transposed, int64_t rows, int64_t columns, int64_t row,
                          int64_t GemmBatch::*step) {
      if (transposed) std::swap(rows, columns);
      if (std::min({rows, columns, s.products()}) == 0) return int64_t{0};
      return (s.outer.count - 1) * s.outer.*step + (s.inner.count - 1) * s.inner.*step +
             (rows - 1) * row + columns;
    };
    a = span(s.transpose_a, s.m, s.k, s.row_a(), &GemmBatch::a);
    b = span(s.transpose_b, s.k, s.n, s.row_b(), &GemmBatch::b);
    c = span(false, s.m, s.n, s.row_c(), &GemmBatch::c);
  }
  int64_t a, b, c;
};

// before: what c holds, between its rows as well; NaNs if empty.  left_out: the product is one of
// so many more rows.
template <typename T>
std::vector<T> RunGemm(Rig& rig, const PrimitiveLibrary& library, const GemmSpec& spec,
                       const std::vector<T>& a, const std::vector<T>& b, const std::vector<T>& bias,
                       std::vector<T> before = {}, int64_t left_out = 0) {
  const int64_t rows = spec.transpose_a ? spec.k : spec.m;
  const auto gemm = Get(library.Prepare(OfRows(spec, rows + left_out)));
  if (before.empty()) before.assign(static_cast<size_t>(GemmSpans(spec).c), static_cast<T>(NAN));
  const Rig::Bytes device_a(rig, a), device_b(rig, b), device_bias(rig, bias), c(rig, before);
  const Rig::Bytes scratch(rig, gemm->scratch_bytes()), packed(rig, gemm->packed_bytes());
  if (gemm->packed_bytes() > 0) Check(gemm->Pack(rig.stream(), device_b.data(), packed.data()));
  const void* const taken = gemm->packed_bytes() > 0 ? packed.data() : device_b.data();
  if (left_out > 0) {
    Check(gemm->RunRows(rig.stream(), rows, device_a.data(), taken, c.data(), scratch.data()));
  } else {
    Check(gemm->Run(rig.stream(), device_a.data(), taken, device_bias.data(), c.data(),
                    scratch.data()));
  }
  return c.Read<T>();
}

template <typename T>
struct ConvInputs {
  std::vector<T> x, weights, bias, dy;
};

template <typename T>
ConvInputs<T> RandomConvInputs(Random& random, const Conv2dSpec& spec) {
  return {.x = RandomValues<T>(random, spec.n * spec.h * spec.w * spec.c),
          .weights = RandomValues<T>(random, spec.weights()),
          .bias = RandomValues<T>(random, spec.bias ? spec.filters : 0),
          .dy = RandomValues<T>(random, spec.n * spec.out_h() * spec.out_w() * spec.filters)};
}

template <typename To, typename From>
ConvInputs<To> Convert(const ConvInputs<From>& in) {
  return {Convert<To>(in.x), Convert<To>(in.weights), Convert<To>(in.bias), Convert<To>(in.dy)};
}

template <typename T>
ConvInputs<T> Absolute(const ConvInputs<T>& in) {
  return {Absolute(in.x), Absolute(in.weights), Absolute(in.bias), Absolute(in.dy)};
}

template <typename T>
struct ConvOutputs {
  std::vector<T> y, dx, dweights, dbias;  // dweights: canonical
  std::vector<std::byte> opaque_dweights;
  WeightLayout layout;
};

// Without spec.train: y alone.
template <typename T>
ConvOutputs<T> RunConv(Rig& rig, const PrimitiveLibrary& library, const Conv2dSpec& spec,
                       const ConvInputs<T>& in) {
  const auto conv = Get(library.Prepare(spec));
  ConvOutputs<T> out;
  out.layout = conv->weight_layout();
  std::vector<std::byte> opaque(out.layout.bytes, std::byte{0xFF});
  Check(conv->Pack(in.weights.data(), opaque.data()));

  const Rig::Bytes x(rig, in.x), weights(rig, opaque), bias(rig, in.bias), dy(rig, in.dy);
  const Rig::Bytes y(rig, in.dy.size() * sizeof(T)), dx(rig, in.x.size() * sizeof(T));
  const Rig::Bytes dweights(rig, opaque.size()), dbias(rig, in.bias.size() * sizeof(T));
  const Rig::Bytes scratch(rig, conv->scratch_bytes());
  Stream& stream = rig.stream();
  Check(conv->Forward(stream, x.data(), weights.data(), bias.data(), y.data(), scratch.data()));
  out.y = y.Read<T>();
  if (!spec.train) {
    std::vector<T> unpacked(in.weights.size());
    Check(conv->Unpack(opaque.data(), unpacked.data()));
    EXPECT_EQ(unpacked, in.weights) << "canonical weights";
    return out;
  }
  Check(conv->BackwardData(stream, dy.data(), weights.data(), dx.data(), scratch.data()));
  Check(conv->BackwardWeights(stream, x.data(), dy.data(), dweights.data(), dbias.data(),
                              scratch.data()));
  out.dx = dx.Read<T>();
  out.dbias = dbias.Read<T>();
  out.opaque_dweights = dweights.Read<std::byte>();
  EXPECT_EQ(weights.Read<std::byte>(), opaque) << "weights were changed";
  out.dweights.resize(in.weights.size());
  Check(conv->Unpack(out.opaque_dweights.data(), out.dweights.data()));
  return out;
}

template <typename T>
void ExpectClose(const ConvOutputs<T>& got, const ConvOutputs<double>& want,
                 const ConvOutputs<double>& magnitude, double relative, const std::string& what) {
  ExpectClose(got.y, want.y, magnitude.y, relative, what + ": y");
  ExpectClose(got.dx, want.dx, magnitude.dx, relative, what + ": dx");
  ExpectClose(got.dweights, want.dweights, magnitude.dweights, relative, what + ": dweights");
  ExpectClose(got.dbias, want.dbias, magnitude.dbias, relative, what + ": dbias");
}

template <typename T>
void ExpectSameBits(const ConvOutputs<T>& got, const ConvOutputs<T>& want,
                    const std::string& what) {
  EXPECT_EQ(got.y, want.y) << what;
  EXPECT_EQ(got.dx, want.dx) << what;
  EXPECT_EQ(got.opaque_dweights, want.opaque_dweights) << what;
  EXPECT_EQ(got.dbias, want.dbias) << what;
}

template <typename T>
struct PoolOutputs {
  std::vector<T> y, dx;
};

template <typename T>
PoolOutputs<T> RunPool(Rig& rig, const PrimitiveLibrary& library, const Pool2dSpec& spec,
                       const std::vector<T>& x, const std::vector<T>& dy) {
  const auto pool = Get(library.Prepare(spec));
  const Rig::Bytes device_x(rig, x), device_dy(rig, dy), y(rig, dy.size() * sizeof(T));
  const Rig::Bytes dx(rig, x.size() * sizeof(T)), saved(rig, pool->saved_bytes());
  Check(pool->Forward(rig.stream(), device_x.data(), y.data(), saved.data()));
  Check(pool->Backward(rig.stream(), device_dy.data(), saved.data(), dx.data()));
  return {.y = y.Read<T>(), .dx = dx.Read<T>()};
}

constexpr Window2d Square(int64_t kernel, int64_t stride = 1, int64_t padding = 0) {
  Window2d window{.kernel_h = kernel, .kernel_w = kernel, .stride_h = stride, .stride_w = stride};
  window.padding_top = window.padding_bottom = padding;
  window.padding_left = window.padding_right = padding;
  return window;
}

inline GemmSpec RandomGemmSpec(Random& random, DType dtype) {
  GemmSpec spec{.dtype = dtype};
  spec.m = Pick(random, {1, 2, 5, 16, 33, 64, 65, 130});
  spec.n = Pick(random, {1, 3, 8, 10, 17, 63, 64, 100, 257});
  spec.k = Pick(random, {1, 2, 7, 63, 64, 65, 150, 1030});
  spec.transpose_a = Pick(random, {0, 1}) != 0;
  spec.transpose_b = Pick(random, {0, 1}) != 0;
  spec.bias = Pick(random, {0, 1}) != 0;
  return spec;
}

// Products of parts of arrays: matrices one after another, side by side as attention's heads are,
// or, of the factors, one for all; with gaps and without.
inline GemmSpec RandomPartsSpec(Random& random, DType dtype) {
  GemmSpec spec = RandomGemmSpec(random, dtype);
  spec.m = Pick(random, {1, 2, 5, 16, 33});
  spec.n = Pick(random, {1, 3, 8, 17, 64});
  spec.k = Pick(random, {1, 2, 7, 32, 65});
  spec.outer.count = Pick(random, {1, 1, 2, 3});
  spec.inner.count = Pick(random, {1, 2, 4});
  spec.accumulate = Pick(random, {0, 1}) != 0;
  const auto place = [&](bool transposed, int64_t rows, int64_t columns, bool is_factor,
                         int64_t& row, int64_t GemmBatch::*step) {
    if (transposed) std::swap(rows, columns);
    const int64_t gap = Pick(random, {0, 4, 5});
    const bool side_by_side = Pick(random, {0, 1}) != 0;
    spec.inner.*step = side_by_side ? columns : rows * (columns + gap);
    row = (side_by_side ? spec.inner.count * columns : columns) + gap;
    spec.outer.*step = side_by_side ? rows * row : spec.inner.count * spec.inner.*step;
    if (is_factor && Pick(random, {0, 0, 1}) != 0) spec.outer.*step = 0;
    if (is_factor && Pick(random, {0, 0, 1}) != 0) spec.inner.*step = 0;
  };
  place(spec.transpose_a, spec.m, spec.k, true, spec.lda, &GemmBatch::a);
  place(spec.transpose_b, spec.k, spec.n, true, spec.ldb, &GemmBatch::b);
  place(false, spec.m, spec.n, false, spec.ldc, &GemmBatch::c);
  return spec;
}

// A valid convolution of a few thousand multiplications: channel counts around the widths of
// vectors, kernels larger than the image, every attribute on and off.
inline Conv2dSpec RandomConvSpec(Random& random, DType dtype) {
  while (true) {
    const int64_t group_channels = Pick(random, {1, 1, 2, 3, 4, 7, 8, 16, 17});
    const int64_t group_filters = Pick(random, {1, 2, 3, 5, 8, 16, 19, 20, 32});
    Conv2dSpec spec;
    spec.dtype = dtype;
    spec.groups = Pick(random, {1, 1, 1, 2, 3, 8});
    spec.n = Pick(random, {1, 2, 3, 5});
    spec.h = Pick(random, {1, 2, 3, 5, 8, 11});
    spec.w = Pick(random, {1, 2, 4, 7, 9, 13});
    spec.c = spec.groups * group_channels;
    spec.filters = spec.groups * group_filters;
    Window2d& w = spec.window;
    const bool square = Pick(random, {0, 1}) != 0;
    w.kernel_h = Pick(random, {1, 2, 3, 5, 6});
    w.kernel_w = square ? w.kernel_h : Pick(random, {1, 2, 3, 4, 7});
    w.stride_h = Pick(random, {1, 1, 2, 3});
    w.stride_w = square ? w.stride_h : Pick(random, {1, 2, 4});
    w.dilation_h = Pick(random, {1, 1, 1, 2, 3});
    w.dilation_w = square ? w.dilation_h : Pick(random, {1, 2});
    if (Pick(random, {0, 1, 1}) != 0) {
      w.padding_top = Pick(random, {0, 1, 2, 3, 6});
      w.padding_bottom = Pick(random, {0, 1, 2, 4});
      w.padding_left = Pick(random, {0, 1, 2, 3});
      w.padding_right = Pick(random, {0, 1, 3, 5});
    }
    spec.bias = Pick(random, {0, 1}) != 0;
    if (Validate(spec).ok()) return spec;
  }
}

// In a few of 20 rounds, a convolution of nothing: no images, no channels, no filters, or images of
// padding alone.
inline void MakeEmpty(Conv2dSpec& spec, int round) {
  if (round % 20 == 0) spec.n = 0;
  if (round % 20 == 1) spec.c = 0;
  if (round % 20 == 2) spec.filters = 0;
  if (round % 20 == 3) {
    spec.h = 0;
    spec.window.padding_top = spec.window.kernel_h * spec.window.dilation_h;
  }
}

inline Pool2dSpec RandomPoolSpec(Random& random, DType dtype) {
  while (true) {
    Pool2dSpec spec;
    spec.dtype = dtype;
    spec.kind = Pick(random, {0, 1}) != 0 ? PoolKind::kMax : PoolKind::kAverage;
    spec.n = Pick(random, {1, 2, 3});
    spec.h = Pick(random, {1, 2, 4, 5, 7, 12});
    spec.w = Pick(random, {1, 3, 4, 6, 9, 10});
    spec.c = Pick(random, {1, 2, 3, 7, 8, 16, 17, 20, 50});
    Window2d& w = spec.window;
    w.kernel_h = Pick(random, {1, 2, 3, 4});
    w.kernel_w = Pick(random, {1, 2, 3, 5});
    w.stride_h = Pick(random, {1, 2, 3, 5});
    w.stride_w = Pick(random, {1, 2, 4});
    w.padding_top = Pick(random, {0, 0, 1, 2});
    w.padding_bottom = Pick(random, {0, 1, 3});
    w.padding_left = Pick(random, {0, 0, 1, 2});
    w.padding_right = Pick(random, {0, 1, 2});
    if (Validate(spec).ok()) return spec;
  }
}

}  // namespace gyre
