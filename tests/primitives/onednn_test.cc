// oneDNN's GEMM and pooling against the reference in double.
#include <gtest/gtest.h>

#include "tests/primitives/oracle.h"

namespace gyre {
namespace {

constexpr double kTolerance = 2e-6;  // relative to the sum of absolute values: 33 roundings

class OneDnnTest : public testing::TestWithParam<DeviceKind> {
 protected:
  const std::unique_ptr<PrimitiveLibrary> reference_ = NewBlockedLibrary();
  const std::unique_ptr<PrimitiveLibrary> library_ = NewOneDnnLibrary(kManyThreads);
  Rig rig_{kManyThreads, GetParam()};
  Random random_{20240609};
};

// The worker thread of a sim stream is not the thread that prepared the operation.
INSTANTIATE_TEST_SUITE_P(, OneDnnTest, testing::Values(DeviceKind::kCpu, DeviceKind::kSim),
                         [](const auto& info) {
                           return info.param == DeviceKind::kCpu ? "cpu" : "sim";
                         });

TEST_P(OneDnnTest, GemmAsReference) {
  const auto one_thread = NewOneDnnLibrary(1);
  for (int round = 0; round < 300; ++round) {
    const GemmSpec spec = RandomGemmSpec(random_, DType::kF32);
    const auto a = RandomValues<float>(random_, spec.m * spec.k);
    const auto b = RandomValues<float>(random_, spec.k * spec.n);
    const auto bias = RandomValues<float>(random_, spec.bias ? spec.n : 0);
    const auto got = RunGemm(rig_, *library_, spec, a, b, bias);
    EXPECT_EQ(got, RunGemm(rig_, *library_, spec, a, b, bias)) << ToString(spec);

    GemmSpec precise = spec;
    precise.dtype = DType::kF64;
    const auto a64 = Convert<double>(a), b64 = Convert<double>(b), bias64 = Convert<double>(bias);
    const auto want = RunGemm(rig_, *reference_, precise, a64, b64, bias64);
    const auto magnitude =
        RunGemm(rig_, *reference_, precise, Absolute(a64), Absolute(b64), Absolute(bias64));
    ExpectClose(got, want, magnitude, kTolerance, ToString(spec));
    ExpectClose(RunGemm(rig_, *one_thread, spec, a, b, bias), want, magnitude, kTolerance,
                ToString(spec) + " one thread");
  }
}

// bfloat16 operands, summed in float.
TEST_P(OneDnnTest, BFloat16GemmAsReference) {
  if (!library_->Prepare(GemmSpec{.dtype = DType::kBF16, .m = 1, .n = 1, .k = 1}).ok()) {
    GTEST_SKIP() << "not on this CPU";
  }
  Oracle oracle(rig_, *library_);
  for (int round = 0; round < 200 && !HasFatalFailure(); ++round) {
    GemmSpec spec = RandomGemmSpec(random_, DType::kBF16);
    if (round % 2 == 0) spec.activation = Activation::kRelu;
    oracle.CheckGemm<BFloat16>(random_, spec, Tolerance(DType::kBF16));
  }
}

TEST_P(OneDnnTest, ActivationAsReference) {
  Oracle oracle(rig_, *library_);
  for (int round = 0; round < 50 && !HasFatalFailure(); ++round) {
    GemmSpec gemm = RandomGemmSpec(random_, DType::kF32);
    gemm.activation = Activation::kRelu;
    oracle.CheckGemm<float>(random_, gemm, kTolerance);
    Conv2dSpec conv = RandomConvSpec(random_, DType::kF32);
    conv.activation = Activation::kRelu;
    oracle.CheckConv<float>(random_, conv, kTolerance);
  }
}

TEST_P(OneDnnTest, PoolAsReference) {
  for (int round = 0; round < 300; ++round) {
    const Pool2dSpec spec = RandomPoolSpec(random_, DType::kF32);
    auto x = RandomValues<float>(random_, spec.n * spec.h * spec.w * spec.c);
    // Every other time full of equal and of negative values: ties, and no maximum in the padding.
    if (round % 2 == 0) {
      for (float& value : x) value = std::floor(3 * value) - 3;
    }
    const auto dy = RandomValues<float>(random_, spec.n * spec.out_h() * spec.out_w() * spec.c);
    const auto got = RunPool(rig_, *library_, spec, x, dy);
    const auto again = RunPool(rig_, *library_, spec, x, dy);
    EXPECT_EQ(got.y, again.y) << ToString(spec);
    EXPECT_EQ(got.dx, again.dx) << ToString(spec);

    Pool2dSpec precise = spec;
    precise.dtype = DType::kF64;
    const auto want = RunPool(rig_, *reference_, precise, Convert<double>(x), Convert<double>(dy));
    const std::vector<double> six(want.y.size(), 6.0), sixteen(want.dx.size(), 16.0);
    ExpectClose(got.y, want.y, six, 1e-7, ToString(spec) + ": y");
    ExpectClose(got.dx, want.dx, sixteen, 1e-7, ToString(spec) + ": dx");
  }
}

TEST_P(OneDnnTest, InferencePoolSavesNothing) {
  Pool2dSpec spec{
      .n = 2, .h = 6, .w = 6, .c = 20, .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
    spec.kind = kind;
    spec.train = true;
    const auto x = RandomValues<float>(random_, 2 * 6 * 6 * 20);
    const auto want = RunPool(rig_, *library_, spec, x, std::vector<float>(2 * 3 * 3 * 20)).y;
    spec.train = false;
    for (const PrimitiveLibrary* library : {library_.get(), reference_.get()}) {
      const auto pool = Get(library->Prepare(spec));
      EXPECT_EQ(pool->saved_bytes(), 0);
      const Rig::Bytes device_x(rig_, x), y(rig_, want.size() * sizeof(float));
      Check(pool->Forward(rig_.stream(), device_x.data(), y.data(), nullptr));
      EXPECT_EQ(y.Read<float>(), want) << library->name();
    }
  }
}

}  // namespace
}  // namespace gyre
