// The reference library against formulas written down a second time, independently, in double, and
// against numerical gradients.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/primitives/operations.h"

namespace gyre {
namespace {

constexpr double kF64 = 1e-14, kF32 = 2e-6;

double Tolerance(DType dtype) { return dtype == DType::kF64 ? kF64 : kF32; }

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
            for (int64_t kh = 0; kh < s.kernel_h; ++kh)
              for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
                const int64_t h = oh * s.stride_h + kh * s.dilation_h - s.padding_top;
                const int64_t w = ow * s.stride_w + kw * s.dilation_w - s.padding_left;
                if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
                const int64_t x = ((n * s.h + h) * s.w + w) * s.c + f / group_f * group_c + c;
                const int64_t k = ((f * group_c + c) * s.kernel_h + kh) * s.kernel_w + kw;
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
          for (int64_t kh = 0; kh < s.kernel_h; ++kh)
            for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
              const int64_t h = oh * s.stride_h + kh - s.padding_top;
              const int64_t w = ow * s.stride_w + kw - s.padding_left;
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

class ReferenceTest : public testing::TestWithParam<DType> {
 protected:
  const std::unique_ptr<PrimitiveLibrary> library_ = NewBlockedLibrary();
  Rig rig_{kManyThreads};
  Random random_{20240607};
};

INSTANTIATE_TEST_SUITE_P(, ReferenceTest, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(ReferenceTest, GemmIsItsFormula) {
  VisitComputeType(GetParam(), [&]<typename T>() {
    for (int round = 0; round < 200; ++round) {
      GemmSpec spec{.dtype = GetParam()};
      spec.m = Pick(random_, {0, 1, 2, 5, 16, 33, 64, 65, 130});
      spec.n = Pick(random_, {0, 1, 3, 8, 17, 63, 64, 100});
      spec.k = Pick(random_, {0, 1, 2, 7, 63, 64, 65, 150});
      spec.transpose_a = Pick(random_, {0, 1}) != 0;
      spec.transpose_b = Pick(random_, {0, 1}) != 0;
      spec.bias = Pick(random_, {0, 1}) != 0;
      const auto a = RandomValues<T>(random_, spec.m * spec.k);
      const auto b = RandomValues<T>(random_, spec.k * spec.n);
      const auto bias = RandomValues<T>(random_, spec.bias ? spec.n : 0);
      std::vector<double> want(static_cast<size_t>(spec.m * spec.n)), magnitude(want.size());
      for (int64_t i = 0; i < spec.m; ++i)
        for (int64_t j = 0; j < spec.n; ++j) {
          double sum = spec.bias ? bias[j] : 0, size = std::abs(sum);
          for (int64_t p = 0; p < spec.k; ++p) {
            const double product =
                static_cast<double>(a[spec.transpose_a ? p * spec.m + i : i * spec.k + p]) *
                b[spec.transpose_b ? j * spec.k + p : p * spec.n + j];
            sum += product;
            size += std::abs(product);
          }
          want[i * spec.n + j] = sum;
          magnitude[i * spec.n + j] = size;
        }
      ExpectClose(RunGemm<T>(rig_, *library_, spec, a, b, bias), want, magnitude,
                  Tolerance(GetParam()), ToString(spec));
    }
  });
}

TEST_P(ReferenceTest, ConvIsItsFormula) {
  VisitComputeType(GetParam(), [&]<typename T>() {
    for (int round = 0; round < 200; ++round) {
      const Conv2dSpec spec = RandomConvSpec(random_, GetParam());
      const auto in = RandomConvInputs<T>(random_, spec);
      const auto precise = Convert<double>(in);
      ExpectClose(RunConv(rig_, *library_, spec, in), NaiveConv(spec, precise),
                  NaiveConv(spec, Absolute(precise)), Tolerance(GetParam()), ToString(spec));
    }
  });
}

TEST_P(ReferenceTest, PoolIsItsFormula) {
  VisitComputeType(GetParam(), [&]<typename T>() {
    for (int round = 0; round < 200; ++round) {
      const Pool2dSpec spec = RandomPoolSpec(random_, GetParam());
      auto x = RandomValues<T>(random_, spec.n * spec.h * spec.w * spec.c);
      // Every other time full of equal and of negative values: ties, and no maximum in the padding.
      if (round % 2 == 0) {
        for (T& value : x) value = std::floor(3 * value) - 3;
      }
      const auto dy = RandomValues<T>(random_, spec.n * spec.out_h() * spec.out_w() * spec.c);
      const auto got = RunPool<T>(rig_, *library_, spec, x, dy);
      const auto want = NaivePool(spec, Convert<double>(x), Convert<double>(dy));
      const std::vector<double> six(want.y.size(), 6.0), sixteen(want.dx.size(), 16.0);
      ExpectClose(got.y, want.y, six, Tolerance(GetParam()), ToString(spec) + ": y");
      ExpectClose(got.dx, want.dx, sixteen, Tolerance(GetParam()), ToString(spec) + ": dx");
    }
  });
}

TEST_P(ReferenceTest, LogSoftmaxIsItsFormula) {
  VisitComputeType(GetParam(), [&]<typename T>() {
    for (const int64_t rows : {0, 1, 7}) {
      for (const int64_t columns : {1, 2, 10, 1000}) {
        for (const double scale : {1.0, 100.0, 1e4}) {  // exp of the last overflows
          const LogSoftmaxSpec spec{.dtype = GetParam(), .rows = rows, .columns = columns};
          auto x = RandomValues<T>(random_, rows * columns);
          for (T& value : x) value *= static_cast<T>(scale);
          std::vector<double> want, magnitude;
          for (int64_t row = 0; row < rows; ++row) {
            long double largest = x[row * columns], sum = 0;
            for (int64_t i = 0; i < columns; ++i) {
              largest = std::max<long double>(largest, x[row * columns + i]);
            }
            for (int64_t i = 0; i < columns; ++i) sum += std::exp(x[row * columns + i] - largest);
            for (int64_t i = 0; i < columns; ++i) {
              want.push_back(static_cast<double>(x[row * columns + i] - largest - std::log(sum)));
              magnitude.push_back(std::abs(want.back()) + 1);
            }
          }
          ExpectClose(RunLogSoftmax<T>(rig_, *library_, spec, x), want, magnitude,
                      GetParam() == DType::kF64 ? 1e-14 : 1e-7, ToString(spec));
        }
      }
    }
  });
}

// The gradients of sum(y * dy) that Backward gives and those that differences of Forward give.
void ExpectGradient(const std::function<std::vector<double>()>& forward,
                    const std::vector<double>& dy, std::vector<double>& values,
                    const std::vector<double>& gradient, const std::string& what) {
  const auto loss = [&] {
    const std::vector<double> y = forward();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    values[i] = value + kStep;
    const double above = loss();
    values[i] = value - kStep;
    const double below = loss();
    values[i] = value;
    const double numerical = (above - below) / (2 * kStep);
    ASSERT_LE(std::abs(numerical - gradient[i]), 1e-7 * std::max(1.0, std::abs(gradient[i])))
        << what << " at " << i;
  }
}

TEST(ReferenceGradientTest, ConvAgreesWithDifferences) {
  Rig rig(1);
  Random random(7);
  const auto library = NewBlockedLibrary();
  for (int round = 0; round < 12; ++round) {
    Conv2dSpec spec = RandomConvSpec(random, DType::kF64);
    spec.n = 2;
    spec.h = std::min<int64_t>(spec.h, 5);
    spec.w = std::min<int64_t>(spec.w, 4);
    spec.c = 2 * spec.groups;
    spec.filters = 3 * spec.groups;
    if (!Validate(spec).ok()) continue;
    auto in = RandomConvInputs<double>(random, spec);
    const auto out = RunConv(rig, *library, spec, in);
    const auto forward = [&] { return RunConv(rig, *library, spec, in).y; };
    ExpectGradient(forward, in.dy, in.x, out.dx, ToString(spec) + ": dx");
    ExpectGradient(forward, in.dy, in.weights, out.dweights, ToString(spec) + ": dweights");
    ExpectGradient(forward, in.dy, in.bias, out.dbias, ToString(spec) + ": dbias");
  }
}

TEST(ReferenceGradientTest, PoolAgreesWithDifferences) {
  Rig rig(1);
  Random random(8);
  const auto library = NewBlockedLibrary();
  for (int round = 0; round < 20; ++round) {
    Pool2dSpec spec = RandomPoolSpec(random, DType::kF64);
    spec.n = 1;
    spec.c = 2;
    auto x = RandomValues<double>(random, spec.h * spec.w * spec.c);
    const auto dy = RandomValues<double>(random, spec.out_h() * spec.out_w() * spec.c);
    const auto out = RunPool(rig, *library, spec, x, dy);
    ExpectGradient([&] { return RunPool(rig, *library, spec, x, dy).y; }, dy, x, out.dx,
                   ToString(spec));
  }
}

// The bits of a sum depend on its order alone, and that on the extents alone.
TEST(ReferenceThreadsTest, ThreadCountDoesNotChangeBits) {
  Rig one(1), many(kManyThreads), three(kManyThreads == 1 ? 1 : 3, DeviceKind::kSim);
  Random random(9);
  const auto library = NewBlockedLibrary();
  for (int round = 0; round < 30; ++round) {
    const Conv2dSpec spec = RandomConvSpec(random, DType::kF32);
    const auto in = RandomConvInputs<float>(random, spec);
    const auto want = RunConv(one, *library, spec, in);
    for (Rig* rig : {&many, &three}) {
      const auto got = RunConv(*rig, *library, spec, in);
      EXPECT_EQ(got.y, want.y) << ToString(spec);
      EXPECT_EQ(got.dx, want.dx) << ToString(spec);
      EXPECT_EQ(got.dweights, want.dweights) << ToString(spec);
      EXPECT_EQ(got.dbias, want.dbias) << ToString(spec);
    }
  }
  const GemmSpec gemm{.m = 77, .n = 131, .k = 300};
  const auto a = RandomValues<float>(random, 77 * 300), b = RandomValues<float>(random, 300 * 131);
  EXPECT_EQ(RunGemm<float>(one, *library, gemm, a, b, {}),
            RunGemm<float>(three, *library, gemm, a, b, {}));
}

}  // namespace
}  // namespace gyre
