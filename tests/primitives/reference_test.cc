// The reference against formulas written down a second time, independently; and what the other
// libraries' comparison with it does not show.
#include "engine/runtime/primitives/reference/reference.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/primitives/oracle.h"
#include "tests/runtime/monoid_check.h"

namespace gyre {
namespace {

// From the definition: every (output pixel, filter, channel, tap) once.
ConvOutputs<double> NaiveConv(const Conv2dSpec& s, const ConvInputs<double>& in) {
  ConvOutputs<double> out;
  out.y.resize(in.dy.size());
  out.dx.resize(in.x.size());
  out.dweights.resize(in.weights.size());
  out.dbias.resize(in.bias.size());
  const int64_t group_c = s.c / s.groups, group_f = s.filters / s.groups;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t oh = 0; oh < s.out_h(); ++oh)
      for (int64_t ow = 0; ow < s.out_w(); ++ow)
        for (int64_t f = 0; f < s.filters; ++f) {
          const int64_t y = ((n * s.out_h() + oh) * s.out_w() + ow) * s.filters + f;
          if (s.bias) {
            out.y[y] += in.bias[f];
            out.dbias[f] += in.dy[y];
          }
          for (int64_t c = 0; c < group_c; ++c)
            for (int64_t kh = 0; kh < s.window.kernel_h; ++kh)
              for (int64_t kw = 0; kw < s.window.kernel_w; ++kw) {
                const int64_t h =
                    oh * s.window.stride_h + kh * s.window.dilation_h - s.window.padding_top;
                const int64_t w =
                    ow * s.window.stride_w + kw * s.window.dilation_w - s.window.padding_left;
                if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
                const int64_t x = ((n * s.h + h) * s.w + w) * s.c + f / group_f * group_c + c;
                const int64_t k =
                    ((f * group_c + c) * s.window.kernel_h + kh) * s.window.kernel_w + kw;
                out.y[y] += in.x[x] * in.weights[k];
                out.dx[x] += in.dy[y] * in.weights[k];
                out.dweights[k] += in.dy[y] * in.x[x];
              }
        }
  return out;
}

PoolOutputs<double> NaivePool(const Pool2dSpec& s, const std::vector<double>& x,
                              const std::vector<double>& dy) {
  PoolOutputs<double> out;
  out.y.resize(dy.size());
  out.dx.resize(x.size());
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t oh = 0; oh < s.out_h(); ++oh)
      for (int64_t ow = 0; ow < s.out_w(); ++ow)
        for (int64_t c = 0; c < s.c; ++c) {
          std::vector<int64_t> window;
          for (int64_t kh = 0; kh < s.window.kernel_h; ++kh)
            for (int64_t kw = 0; kw < s.window.kernel_w; ++kw) {
              const int64_t h = oh * s.window.stride_h + kh - s.window.padding_top;
              const int64_t w = ow * s.window.stride_w + kw - s.window.padding_left;
              if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
              window.push_back(((n * s.h + h) * s.w + w) * s.c + c);
            }
          const int64_t y = ((n * s.out_h() + oh) * s.out_w() + ow) * s.c + c;
          if (s.kind == PoolKind::kMax) {
            int64_t best = window[0];
            for (const int64_t i : window) best = x[i] > x[best] ? i : best;
            out.y[y] = x[best];
            out.dx[best] += dy[y];
          } else {
            for (const int64_t i : window) {
              out.y[y] += x[i] / static_cast<double>(window.size());
              out.dx[i] += dy[y] / static_cast<double>(window.size());
            }
          }
        }
  return out;
}

constexpr double kTolerance = 1e-14;

class FormulaTest : public testing::Test {
 protected:
  const std::unique_ptr<PrimitiveLibrary> library_ = NewReferenceLibrary();
  Rig rig_{kManyThreads};
  Random random_{20240607};
};

TEST_F(FormulaTest, GemmIsItsFormula) {
  for (int round = 0; round < 200; ++round) {
    GemmSpec spec{.dtype = DType::kF64};
    spec.m = Pick(random_, {0, 1, 2, 5, 16, 33, 64, 65, 130});
    spec.n = Pick(random_, {0, 1, 3, 8, 17, 63, 64, 100});
    spec.k = Pick(random_, {0, 1, 2, 7, 63, 64, 65, 150});
    spec.transpose_a = Pick(random_, {0, 1}) != 0;
    spec.transpose_b = Pick(random_, {0, 1}) != 0;
    spec.bias = Pick(random_, {0, 1}) != 0;
    const auto a = RandomValues<double>(random_, spec.m * spec.k);
    const auto b = RandomValues<double>(random_, spec.k * spec.n);
    const auto bias = RandomValues<double>(random_, spec.bias ? spec.n : 0);
    std::vector<double> want(static_cast<size_t>(spec.m * spec.n)), magnitude(want.size());
    for (int64_t i = 0; i < spec.m; ++i)
      for (int64_t j = 0; j < spec.n; ++j) {
        double sum = spec.bias ? bias[j] : 0, size = std::abs(sum);
        for (int64_t p = 0; p < spec.k; ++p) {
          const double product = a[spec.transpose_a ? p * spec.m + i : i * spec.k + p] *
                                 b[spec.transpose_b ? j * spec.k + p : p * spec.n + j];
          sum += product;
          size += std::abs(product);
        }
        want[i * spec.n + j] = sum;
        magnitude[i * spec.n + j] = size;
      }
    ExpectClose(RunGemm<double>(rig_, *library_, spec, a, b, bias), want, magnitude, kTolerance,
                ToString(spec));
  }
}

TEST_F(FormulaTest, ConvIsItsFormula) {
  for (int round = 0; round < 200; ++round) {
    Conv2dSpec spec = RandomConvSpec(random_, DType::kF64);
    MakeEmpty(spec, round);
    const auto in = RandomConvInputs<double>(random_, spec);
    ExpectClose(RunConv(rig_, *library_, spec, in), NaiveConv(spec, in),
                NaiveConv(spec, Absolute(in)), kTolerance, ToString(spec));
  }
}

TEST_F(FormulaTest, PoolIsItsFormula) {
  for (int round = 0; round < 200; ++round) {
    const Pool2dSpec spec = RandomPoolSpec(random_, DType::kF64);
    auto x = RandomValues<double>(random_, spec.n * spec.h * spec.w * spec.c);
    // Every other time full of equal and of negative values: ties, and no maximum in the padding.
    if (round % 2 == 0) {
      for (double& value : x) value = std::floor(3 * value) - 3;
    }
    const auto dy = RandomValues<double>(random_, spec.n * spec.out_h() * spec.out_w() * spec.c);
    const auto got = RunPool<double>(rig_, *library_, spec, x, dy);
    const auto want = NaivePool(spec, x, dy);
    const std::vector<double> six(want.y.size(), 6.0), sixteen(want.dx.size(), 16.0);
    ExpectClose(got.y, want.y, six, kTolerance, ToString(spec) + ": y");
    ExpectClose(got.dx, want.dx, sixteen, kTolerance, ToString(spec) + ": dx");
  }
}

const DType kRealTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

class ReferenceTest : public testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  double tolerance() const { return Tolerance(dtype()); }

  const std::unique_ptr<PrimitiveLibrary> library_ = NewReferenceLibrary();
  Rig rig_{kManyThreads, DeviceKind::kSim};
  Oracle oracle_{rig_, *library_};
  Random random_{20240701};
};

INSTANTIATE_TEST_SUITE_P(, ReferenceTest, testing::ValuesIn(kRealTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// A window of more than 255 positions takes other code.
TEST_P(ReferenceTest, PoolOfLargeWindows) {
  VisitReal(dtype(), [&]<typename T>() {
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      for (const auto& [kernel_h, kernel_w] : {std::pair(15, 17), std::pair(16, 16)}) {
        const Pool2dSpec spec{.dtype = dtype(),
                              .kind = kind,
                              .n = 2,
                              .h = 19,
                              .w = 23,
                              .c = 4,
                              .window = {.kernel_h = kernel_h,
                                         .kernel_w = kernel_w,
                                         .stride_h = 2,
                                         .padding_top = 3,
                                         .padding_right = 2}};
        const bool max = kind == PoolKind::kMax;
        const int64_t out = spec.n * spec.out_h() * spec.out_w() * spec.c;
        EXPECT_EQ(Get(library_->Prepare(spec))->saved_bytes(),
                  max ? out * (kernel_h * kernel_w == 255 ? 1 : 4) : 0);
        for (int round = 0; round < 5; ++round) {
          // Up to 15 * 17 additions into one gradient, of 1 each.
          oracle_.CheckPool<T>(random_, spec, true, 20 * tolerance());
        }
      }
    }
  });
}

// Operands that no pack of four channels may be loaded from: the same bits.
TEST_P(ReferenceTest, PoolOfMisalignedOperands) {
  VisitReal(dtype(), [&]<typename T>() {
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      const Pool2dSpec spec{
          .dtype = dtype(),
          .kind = kind,
          .n = 2,
          .h = 6,
          .w = 5,
          .c = 8,
          .window = {.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .padding_top = 1}};
      const auto pool = Get(library_->Prepare(spec));
      const auto x = RandomValues<T>(random_, 2 * 6 * 5 * 8);
      const auto dy = RandomValues<T>(random_, 2 * spec.out_h() * spec.out_w() * 8);
      const auto want = RunPool<T>(rig_, *library_, spec, x, dy);
      for (int misaligned = 0; misaligned < 5; ++misaligned) {
        const auto shifted = [&](int which, std::vector<T> values) {
          if (misaligned == which) values.insert(values.begin(), T(9));
          return values;
        };
        const Rig::Bytes device_x(rig_, shifted(0, x)), device_dy(rig_, shifted(1, dy));
        const Rig::Bytes y(rig_, shifted(2, dy)), dx(rig_, shifted(3, x));
        const Rig::Bytes saved(rig_, pool->saved_bytes() + 1);
        const auto data = [&](int which, const Rig::Bytes& bytes) {
          return static_cast<std::byte*>(bytes.data()) + (misaligned == which ? sizeof(T) : 0);
        };
        void* const positions = static_cast<std::byte*>(saved.data()) + (misaligned == 4 ? 1 : 0);
        Check(pool->Forward(rig_.stream(), data(0, device_x), data(2, y), positions));
        Check(pool->Backward(rig_.stream(), data(1, device_dy), positions, data(3, dx)));
        EXPECT_EQ(y.Read<T>(), shifted(2, want.y)) << misaligned;
        EXPECT_EQ(dx.Read<T>(), shifted(3, want.dx)) << misaligned;
      }
    }
  });
}

TEST_P(ReferenceTest, ReductionsAreMonoids) {
  VisitReal(dtype(), [&]<typename T>() {
    const double roundings = 40 * (sizeof(T) == 8 ? 2e-16 : 1e-7);
    const auto near = [&](auto a, auto b) { return std::abs(a - b) <= roundings; };
    Conv2dSpec spec = RandomConvSpec(random_, dtype());
    const auto in = RandomConvInputs<T>(random_, spec);
    const WeightGradient<T> weights{{}, ConvGeometry(spec), in.x.data(), in.dy.data(), nullptr};
    const int64_t pixels = spec.n * spec.out_h() * spec.out_w();
    EXPECT_TRUE(IsMonoid(weights, spec.weights(), std::min<int64_t>(pixels, 20), near));
    const auto values = RandomValues<T>(random_, 5 * 9);
    EXPECT_TRUE(IsMonoid(ColumnSum<T>{{}, 9, values.data(), nullptr}, 5, 9, near));
  });
}

}  // namespace
}  // namespace gyre
