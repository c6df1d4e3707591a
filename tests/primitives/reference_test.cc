// The kernel library against the reference in double, in every real dtype.
#include "engine/runtime/primitives/reference/reference.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/primitives/oracle.h"
#include "tests/runtime/monoid_check.h"

namespace gyre {
namespace {

const DType kRealTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

class KernelsTest : public testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  double tolerance() const { return Tolerance(dtype()); }

  const std::unique_ptr<PrimitiveLibrary> library_ = NewReferenceLibrary();
  Rig rig_{kManyThreads, DeviceKind::kSim};
  Oracle oracle_{rig_, *library_};
  Random random_{20240701};
};

INSTANTIATE_TEST_SUITE_P(, KernelsTest, testing::ValuesIn(kRealTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(KernelsTest, GemmAsReference) {
  VisitReal(dtype(), [&]<typename T>() {
    for (int round = 0; round < 100 && !HasFatalFailure(); ++round) {
      GemmSpec spec = RandomGemmSpec(random_, dtype());
      if (round % 2 == 0) spec.activation = Activation::kRelu;
      if (round % 10 == 0) (round % 20 == 0 ? spec.k : spec.m) = 0;
      oracle_.CheckGemm<T>(random_, spec, tolerance());
    }
  });
}

TEST_P(KernelsTest, ConvAsReference) {
  VisitReal(dtype(), [&]<typename T>() {
    for (int round = 0; round < 150 && !HasFatalFailure(); ++round) {
      Conv2dSpec spec = RandomConvSpec(random_, dtype());
      if (round % 2 == 0) spec.activation = Activation::kRelu;
      if (round % 20 == 0) spec.n = 0;
      if (round % 20 == 1) spec.c = 0;
      if (round % 20 == 2) spec.filters = 0;
      const auto out = oracle_.CheckConv<T>(random_, spec, tolerance());
      EXPECT_EQ(out.layout.tag, "");
      EXPECT_EQ(out.layout.bytes, static_cast<size_t>(spec.weights()) * sizeof(T));
    }
  });
}

// Enough pixels that the gradient of the bias is summed in pieces.
TEST_P(KernelsTest, ConvOfManyPixelsAsReference) {
  VisitReal(dtype(), [&]<typename T>() {
    const Conv2dSpec spec{.dtype = dtype(),
                          .n = 7,
                          .h = 41,
                          .w = 43,
                          .c = 2,
                          .filters = 5,
                          .kernel_h = 3,
                          .kernel_w = 2,
                          .padding_left = 1,
                          .bias = true};
    EXPECT_GT(Get(library_->Prepare(spec))->scratch_bytes(), 0);
    oracle_.CheckConv<T>(random_, spec, tolerance());
  });
}

TEST_P(KernelsTest, PoolAsReference) {
  VisitReal(dtype(), [&]<typename T>() {
    for (int round = 0; round < 200 && !HasFatalFailure(); ++round) {
      Pool2dSpec spec = RandomPoolSpec(random_, dtype());
      if (round % 25 == 0) spec.n = 0;
      if (round % 25 == 1) spec.c = 0;
      oracle_.CheckPool<T>(random_, spec, round % 2 == 0, tolerance());
    }
  });
}

// The sums of 16-bit types are float's: one that gained by less than a rounding a step would stop.
TEST_P(KernelsTest, LongSumsOfEqualSigns) {
  VisitReal(dtype(), [&]<typename T>() {
    const std::vector<T> ones(20000, T(1)), tenths(20000, T(0.125f));
    const GemmSpec gemm{.dtype = dtype(), .m = 1, .n = 1, .k = 20000};
    EXPECT_EQ(RunGemm<T>(rig_, *library_, gemm, ones, tenths, {}), std::vector<T>(1, T(2500)));
    const Pool2dSpec pool{.dtype = dtype(),
                          .kind = PoolKind::kAverage,
                          .n = 1,
                          .h = 100,
                          .w = 200,
                          .c = 1,
                          .kernel_h = 100,
                          .kernel_w = 200};
    EXPECT_EQ(RunPool<T>(rig_, *library_, pool, ones, {T(1)}).y, std::vector<T>(1, T(1)));
    const Conv2dSpec conv{
        .dtype = dtype(), .n = 2, .h = 100, .w = 100, .c = 1, .filters = 1, .bias = true};
    const auto out = RunConv<T>(rig_, *library_, conv,
                                {.x = ones, .weights = {T(1)}, .bias = {T(0)}, .dy = tenths});
    EXPECT_EQ(out.dweights, std::vector<T>(1, T(2500)));
    EXPECT_EQ(out.dbias, std::vector<T>(1, T(2500)));
  });
}

// In the types that the reference has, bit for bit: NaNs at every position, infinities, zeros of
// both signs, ties, and sums in the same order.
TEST_P(KernelsTest, PoolHasTheReferencesBits) {
  if (!IsComputeType(dtype())) return;
  const auto reference = NewBlockedLibrary();
  VisitComputeType(dtype(), [&]<typename T>() {
    const auto bytes = [](const std::vector<T>& values) {
      std::vector<std::byte> bytes(values.size() * sizeof(T));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      return bytes;
    };
    for (int round = 0; round < 200; ++round) {
      const Pool2dSpec spec = RandomPoolSpec(random_, dtype());
      auto x = RandomValues<T>(random_, spec.n * spec.h * spec.w * spec.c);
      constexpr T kInfinity = std::numeric_limits<T>::infinity();
      for (T& value : x) {
        const T choices[] = {static_cast<T>(NAN),  kInfinity, -kInfinity, T{0}, -T{0}, value, value,
                             std::floor(3 * value)};
        value = choices[random_() % 8];
      }
      const auto dy = RandomValues<T>(random_, spec.n * spec.out_h() * spec.out_w() * spec.c);
      const auto got = RunPool<T>(rig_, *library_, spec, x, dy);
      const auto want = RunPool<T>(rig_, *reference, spec, x, dy);
      EXPECT_EQ(bytes(got.y), bytes(want.y)) << ToString(spec);
      EXPECT_EQ(bytes(got.dx), bytes(want.dx)) << ToString(spec);
    }
  });
}

// A window of more than 255 positions takes other code.
TEST_P(KernelsTest, PoolOfLargeWindowsAsReference) {
  VisitReal(dtype(), [&]<typename T>() {
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      for (const auto& [kernel_h, kernel_w] : {std::pair(15, 17), std::pair(16, 16)}) {
        const Pool2dSpec spec{.dtype = dtype(),
                              .kind = kind,
                              .n = 2,
                              .h = 19,
                              .w = 23,
                              .c = 4,
                              .kernel_h = kernel_h,
                              .kernel_w = kernel_w,
                              .stride_h = 2,
                              .padding_top = 3,
                              .padding_right = 2};
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
TEST_P(KernelsTest, PoolOfMisalignedOperands) {
  VisitReal(dtype(), [&]<typename T>() {
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      const Pool2dSpec spec{.dtype = dtype(),
                            .kind = kind,
                            .n = 2,
                            .h = 6,
                            .w = 5,
                            .c = 8,
                            .kernel_h = 3,
                            .kernel_w = 2,
                            .stride_h = 2,
                            .padding_top = 1};
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

TEST_P(KernelsTest, LogSoftmaxAsReference) {
  // Sums in double, as the reference's: F32 is exact but for its last rounding.
  const double tolerance = dtype() == DType::kF32 ? 6e-8 : this->tolerance();
  VisitReal(dtype(), [&]<typename T>() {
    for (const int64_t rows : {0, 1, 7}) {
      for (const int64_t columns : {1, 2, 10, 1000, 5000}) {
        for (const double scale : {1.0, 100.0, 1e4}) {  // exp of the last overflows
          oracle_.CheckLogSoftmax<T>(random_, {.dtype = dtype(), .rows = rows, .columns = columns},
                                     scale, tolerance);
        }
      }
    }
  });
}

TEST_P(KernelsTest, LogSoftmaxOfInfinitiesAndNaNsAsReference) {
  VisitReal(dtype(), [&]<typename T>() {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float rows[][4] = {{1, -kInf, 2, 0},
                             {-kInf, -kInf, -kInf, -kInf},
                             {0, kInf, 1, 2},
                             {kInf, kInf, 0, -kInf},
                             {NAN, 1, 2, 3},
                             {1, 2, 3, NAN},
                             {-kInf, NAN, kInf, -kInf},
                             {-kInf, -kInf, -kInf, 5}};
    for (const auto& row : rows) {
      LogSoftmaxSpec spec{.dtype = dtype(), .rows = 1, .columns = 4};
      const auto got =
          RunLogSoftmax<T>(rig_, *library_, spec, {T(row[0]), T(row[1]), T(row[2]), T(row[3])});
      spec.dtype = DType::kF64;
      const auto want = RunLogSoftmax<double>(rig_, *NewBlockedLibrary(), spec,
                                              std::vector<double>(row, row + 4));
      for (int i = 0; i < 4; ++i) {
        const auto value = static_cast<double>(got[i]);
        EXPECT_EQ(std::isnan(value), std::isnan(want[i])) << row[0] << " ... at " << i;
        if (std::isinf(want[i])) {
          EXPECT_EQ(value, want[i]);
        } else if (!std::isnan(want[i])) {
          EXPECT_NEAR(value, want[i], 4e-2);
        }
      }
    }
  });
}

TEST_P(KernelsTest, ThreadCountDoesNotChangeBits) {
  VisitReal(dtype(), [&]<typename T>() {
    Rig one(1), three(kManyThreads == 1 ? 1 : 3);
    for (int round = 0; round < 10; ++round) {
      const Conv2dSpec spec = RandomConvSpec(random_, dtype());
      const auto in = RandomConvInputs<T>(random_, spec);
      const auto want = RunConv(one, *library_, spec, in);
      const auto got = RunConv(three, *library_, spec, in);
      EXPECT_EQ(got.y, want.y) << ToString(spec);
      EXPECT_EQ(got.dx, want.dx) << ToString(spec);
      EXPECT_EQ(got.dweights, want.dweights) << ToString(spec);
      EXPECT_EQ(got.dbias, want.dbias) << ToString(spec);
    }
    const LogSoftmaxSpec softmax{.dtype = dtype(), .rows = 30, .columns = 1000};
    const auto x = RandomValues<T>(random_, 30 * 1000);
    EXPECT_EQ(RunLogSoftmax<T>(one, *library_, softmax, x),
              RunLogSoftmax<T>(three, *library_, softmax, x));
  });
}

TEST_P(KernelsTest, ReductionsAreMonoids) {
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
    EXPECT_TRUE(IsMonoid(LogSoftmaxRows<T>{9, values.data(), nullptr}, 5, 9,
                         [&](const auto& a, const auto& b) {
                           return a.max == b.max && std::abs(a.sum - b.sum) <= roundings * b.sum;
                         }));
  });
}

TEST_P(KernelsTest, OpaqueWeightsAreLeftToOthers) {
  Conv2dSpec spec{.dtype = dtype(), .n = 1, .h = 3, .w = 3, .c = 1, .filters = 2};
  spec.weight_layout = "onednn:abcd";
  EXPECT_TRUE(absl::IsUnimplemented(library_->Prepare(spec).status()));
}

TEST(KernelsDTypeTest, IntegersAreRefused) {
  const auto library = NewReferenceLibrary();
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kU8}) {
    EXPECT_TRUE(absl::IsUnimplemented(library->Prepare(GemmSpec{.dtype = dtype}).status()));
  }
}

}  // namespace
}  // namespace gyre
