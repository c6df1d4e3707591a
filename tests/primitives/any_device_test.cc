// What a device offers, its vendor's libraries and our kernels, against the reference in double.
// Runs on sim; with GYRE_TEST_DEVICE=cuda, on the GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/primitives/oracle.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

constexpr int kRounds = 40;

// Relative to the sum of the magnitudes that are added.  A GPU's convolutions may transform their
// operands first, which costs a digit.
double ToleranceOn(DeviceKind device, DType dtype) {
  if (dtype == DType::kF64) return 1e-13;
  if (device != DeviceKind::kCuda) return Tolerance(dtype) + Tolerance(DType::kF32);
  if (dtype == DType::kF32) return 1e-5;
  return dtype == DType::kF16 ? 3e-3 : 2e-2;
}

struct Case {
  bool best;  // else the kernels, everything's fallback
  DType dtype;
};

class AnyDeviceTest : public testing::TestWithParam<Case> {
 protected:
  DType dtype() const { return GetParam().dtype; }
  double tolerance() { return ToleranceOn(rig_.device().kind(), dtype()); }

  // Random specs, every other one ending in a ReLU if it can.
  template <typename MakeSpec, typename CheckSpec>
  void Rounds(MakeSpec make, CheckSpec check) {
    VisitReal(dtype(), [&]<typename T>() {
      for (int round = 0; round < kRounds && !HasFatalFailure(); ++round) {
        auto spec = make(random_, dtype());
        if constexpr (requires { spec.activation; }) {
          if (round % 2 == 0) spec.activation = Activation::kRelu;
        }
        check.template operator()<T>(spec, round);
      }
    });
  }

  const TestDevice opened_ = OpenTestDevice(NamedDevice().value_or(DeviceKind::kSim), kManyThreads);
  const std::unique_ptr<PrimitiveLibrary> library_ =
      GetParam().best ? std::make_unique<Chosen>(*opened_.primitives) : NewReferenceLibrary();
  Rig rig_{opened_.device};
  Oracle oracle_{rig_, *library_};
  Random random_{20240703};
};

INSTANTIATE_TEST_SUITE_P(, AnyDeviceTest,
                         testing::Values(Case{true, DType::kF64}, Case{true, DType::kF32},
                                         Case{true, DType::kF16}, Case{true, DType::kBF16},
                                         Case{false, DType::kF64}, Case{false, DType::kF32},
                                         Case{false, DType::kF16}, Case{false, DType::kBF16}),
                         [](const auto& info) {
                           return std::string(info.param.best ? "Best" : "Kernels") +
                                  std::string(DTypeName(info.param.dtype));
                         });

TEST_P(AnyDeviceTest, Gemm) {
  Rounds(RandomGemmSpec, [&]<typename T>(const GemmSpec& spec, int) {
    oracle_.CheckGemm<T>(random_, spec, tolerance());
  });
}

TEST_P(AnyDeviceTest, Conv) {
  Rounds(RandomConvSpec, [&]<typename T>(Conv2dSpec spec, int round) {
    if (round % 20 == 0) spec.n = 0;
    oracle_.CheckConv<T>(random_, spec, tolerance());
  });
}

// As AlexNet's first two, on smaller images: what a vendor's library is made for.
TEST_P(AnyDeviceTest, LargerConv) {
  Conv2dSpec spec{.dtype = dtype(), .n = 2, .h = 13, .w = 13, .c = 32, .filters = 48};
  spec.kernel_h = spec.kernel_w = 5;
  spec.padding_top = spec.padding_bottom = spec.padding_left = spec.padding_right = 2;
  spec.bias = true;
  Conv2dSpec first{.dtype = dtype(), .n = 2, .h = 35, .w = 35, .c = 3, .filters = 32};
  first.kernel_h = first.kernel_w = 11;
  first.stride_h = first.stride_w = 4;
  first.bias = true;
  VisitReal(dtype(), [&]<typename T>() {
    oracle_.CheckConv<T>(random_, spec, tolerance());
    oracle_.CheckConv<T>(random_, first, tolerance());
  });
}

// A NaN in the first sample is one in all that comes of it, and nowhere else: of vendors' fused
// ReLUs some are max(x, 0), which drops it.
TEST_P(AnyDeviceTest, ReluHandsNaNOn) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const auto check = [](const auto& y, size_t of_first, const std::string& what) {
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(std::isnan(static_cast<double>(y[i])), i < of_first) << what << " at " << i;
    }
  };
  VisitReal(dtype(), [&]<typename T>() {
    const auto with_nan = [&](std::vector<T> x, int64_t of_first) {
      std::fill_n(x.begin(), of_first, static_cast<T>(kNaN));
      return x;
    };
    for (const bool bias : {false, true}) {
      const GemmSpec gemm{.dtype = dtype(),
                          .m = 9,
                          .n = 24,
                          .k = 40,
                          .bias = bias,
                          .activation = Activation::kRelu};
      const auto a = with_nan(RandomValues<T>(random_, gemm.m * gemm.k), gemm.k);
      check(RunGemm(rig_, *library_, gemm, a, RandomValues<T>(random_, gemm.k * gemm.n),
                    RandomValues<T>(random_, gemm.n)),
            static_cast<size_t>(gemm.n), ToString(gemm));
      Conv2dSpec conv{.dtype = dtype(), .n = 2, .h = 9, .w = 7, .c = 8, .filters = 16};
      conv.kernel_h = conv.kernel_w = 3;
      conv.bias = bias;
      conv.activation = Activation::kRelu;
      ConvInputs<T> in = RandomConvInputs<T>(random_, conv);
      in.x = with_nan(in.x, conv.h * conv.w * conv.c);
      const auto y = RunConv(rig_, *library_, conv, in).y;
      check(y, y.size() / 2, ToString(conv));
    }
  });
}

TEST_P(AnyDeviceTest, Pool) {
  Rounds(RandomPoolSpec, [&]<typename T>(const Pool2dSpec& spec, int round) {
    oracle_.CheckPool<T>(random_, spec, /*ties=*/round % 2 == 0, tolerance());
  });
}

TEST_P(AnyDeviceTest, LogSoftmax) {
  const auto make = [](Random& random, DType dtype) {
    return LogSoftmaxSpec{.dtype = dtype,
                          .rows = Pick(random, {0, 1, 3, 64, 130}),
                          .columns = Pick(random, {1, 2, 10, 33, 1000})};
  };
  Rounds(make, [&]<typename T>(const LogSoftmaxSpec& spec, int round) {
    oracle_.CheckLogSoftmax<T>(random_, spec, /*scale=*/round % 2 == 0 ? 1 : 100, tolerance());
  });
}

}  // namespace
}  // namespace gyre
