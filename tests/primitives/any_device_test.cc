// Every library against the reference in double: what a device offers, the reference itself in
// other types, and on a CPU the libraries that are not its best.  Runs on sim, whose worker is not
// the thread that prepared the operation; with GYRE_TEST_DEVICE=cuda, on the GPU.
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

enum class Of : uint8_t { kBest, kReference, kBlocked, kConverting };

struct Case {
  const char* name;
  Of library;
  DType dtype;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{"BestF64", Of::kBest, DType::kF64},
                             {"BestF32", Of::kBest, DType::kF32},
                             {"BestF16", Of::kBest, DType::kF16},
                             {"BestBF16", Of::kBest, DType::kBF16},
                             {"ReferenceF64", Of::kReference, DType::kF64},
                             {"ReferenceF32", Of::kReference, DType::kF32},
                             {"ReferenceF16", Of::kReference, DType::kF16},
                             {"ReferenceBF16", Of::kReference, DType::kBF16}};
  if (NamedDevice()) return cases;
  cases.push_back({"BlockedF32", Of::kBlocked, DType::kF32});
  cases.push_back({"ConvertingF16", Of::kConverting, DType::kF16});
  cases.push_back({"ConvertingBF16", Of::kConverting, DType::kBF16});
  return cases;
}

class AnyLibraryTest : public testing::TestWithParam<Case> {
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
        // The best take everything, and so does the reference.
        const bool takes_all = GetParam().library <= Of::kReference;
        if (!takes_all && absl::IsUnimplemented(library_->Prepare(spec).status())) continue;
        check.template operator()<T>(spec, round);
      }
    });
  }

  std::unique_ptr<PrimitiveLibrary> Make() const {
    switch (GetParam().library) {
      case Of::kBest:
        return std::make_unique<Chosen>(*opened_.primitives);
      case Of::kReference:
        return NewReferenceLibrary();
      case Of::kBlocked:
        return NewBlockedLibrary();
      case Of::kConverting:
        return NewConvertingLibrary({blocked_.get()});
    }
    return nullptr;
  }

  const TestDevice opened_ = OpenTestDevice(NamedDevice().value_or(DeviceKind::kSim), kManyThreads);
  const std::unique_ptr<PrimitiveLibrary> blocked_ = NewBlockedLibrary();
  const std::unique_ptr<PrimitiveLibrary> library_ = Make();
  Rig rig_{opened_.device};
  Oracle oracle_{rig_, *library_};
  Random random_{20240703};
};

INSTANTIATE_TEST_SUITE_P(, AnyLibraryTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(AnyLibraryTest, Gemm) {
  Rounds(RandomGemmSpec, [&]<typename T>(GemmSpec spec, int round) {
    if (round % 20 == 0) spec.m = 0;
    if (round % 20 == 1) spec.k = 0;
    if (round % 20 == 2) spec.n = 0;
    oracle_.CheckGemm<T>(random_, spec, tolerance());
  });
}

// Whoever packs b, and whoever takes it as it is.
TEST_P(AnyLibraryTest, GemmOfPackedFactor) {
  const auto make = [](Random& random, DType dtype) {
    GemmSpec spec = RandomGemmSpec(random, dtype);
    spec.transpose_a = spec.bias = false;
    spec.packs_b = true;
    spec.accumulate = Pick(random, {0, 1}) != 0;
    return spec;
  };
  Rounds(make, [&]<typename T>(GemmSpec spec, int round) {
    spec.activation = Activation::kNone;
    if (round % 20 == 0) spec.m = 0;
    if (round % 20 == 1) spec.k = 0;
    oracle_.CheckGemm<T>(random_, spec, tolerance());
  });
}

// Of rows that are known late; a GPU has none.
TEST_P(AnyLibraryTest, GemmOfSomeRows) {
  if (NamedDevice()) GTEST_SKIP();
  const auto make = [](Random& random, DType dtype) {
    GemmSpec spec = RandomGemmSpec(random, dtype);
    spec.bias = false;
    if (spec.transpose_a) spec.transpose_b = false;
    spec.packs_b = !spec.transpose_a && Pick(random, {0, 1}) != 0;
    spec.accumulate = Pick(random, {0, 1}) != 0;
    return spec;
  };
  Rounds(make, [&]<typename T>(GemmSpec spec, int round) {
    spec.activation = Activation::kNone;
    if (round % 20 == 0) (spec.transpose_a ? spec.k : spec.m) = 0;
    oracle_.CheckGemm<T>(random_, spec, tolerance(), Pick(random_, {1, 30, 200}));
  });
}

TEST_P(AnyLibraryTest, GemmOfParts) {
  Rounds(RandomPartsSpec, [&]<typename T>(GemmSpec spec, int round) {
    if (round % 20 == 0) spec.m = 0;
    if (round % 20 == 1) spec.k = 0;
    if (round % 20 == 2) spec.outer.count = 0;
    oracle_.CheckGemm<T>(random_, spec, tolerance());
  });
}

// Of 16 bits, into F32: nothing is rounded but what is added.
TEST_P(AnyLibraryTest, GemmIntoF32) {
  if (SizeOf(dtype()) != 2 || GetParam().library > Of::kReference) GTEST_SKIP();
  Rounds(RandomPartsSpec, [&]<typename T>(GemmSpec spec, int round) {
    spec.bias = false;
    spec.activation = Activation::kNone;
    spec.wide_c = true;
    if (round % 20 == 0) spec.k = 0;
    oracle_.CheckWideGemm<T>(random_, spec, Tolerance(DType::kF32));
  });
}

// What a library leaves out for a hint is none of what is wanted.
TEST_P(AnyLibraryTest, GemmOfTriangles) {
  Rounds(RandomPartsSpec, [&]<typename T>(GemmSpec spec, int) {
    spec.bias = false;
    const GemmSpans spans(spec);
    std::vector<T> a = RandomValues<T>(random_, spans.a);
    const int64_t rows = spec.transpose_a ? spec.k : spec.m;
    const int64_t columns = spec.transpose_a ? spec.m : spec.k;
    ForEachProduct(spec, [&](int64_t at, int64_t, int64_t) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = r + 1; j < columns; ++j) a[at + r * spec.row_a() + j] = static_cast<T>(0);
      }
    });
    const std::vector<T> b = RandomValues<T>(random_, spans.b);
    const std::vector<T> before = RandomValues<T>(random_, spans.c);
    const std::vector<T> whole = RunGemm<T>(rig_, *library_, spec, a, b, {}, before);
    spec.lower_a = spec.lower_c = true;
    const std::vector<T> part = RunGemm<T>(rig_, *library_, spec, a, b, {}, before);
    ForEachProduct(spec, [&](int64_t, int64_t, int64_t at) {
      for (int64_t i = 0; i < spec.m; ++i) {
        for (int64_t j = 0; j <= std::min(i, spec.n - 1); ++j) {
          const int64_t c = at + i * spec.row_c() + j;
          ASSERT_EQ(static_cast<double>(part[c]), static_cast<double>(whole[c])) << ToString(spec);
        }
      }
    });
  });
}

TEST_P(AnyLibraryTest, Conv) {
  Rounds(RandomConvSpec, [&]<typename T>(Conv2dSpec spec, int round) {
    MakeEmpty(spec, round);
    oracle_.CheckConv<T>(random_, spec, tolerance());
  });
}

// A group a channel: around the widths of vectors, and with more rows than a piece of a sum.
TEST_P(AnyLibraryTest, DepthwiseConv) {
  VisitReal(dtype(), [&]<typename T>() {
    for (const int64_t c : {3, 16, 20, 35, 144}) {
      for (const int64_t n : {0, 1, 5}) {
        for (const bool plain : {true, false}) {
          Conv2dSpec spec{.dtype = dtype(), .n = n, .h = 9, .w = 7, .c = c, .filters = c};
          spec.groups = c;
          Window2d& w = spec.window;
          w = {.kernel_h = 3, .kernel_w = 3, .padding_top = 1, .padding_left = 1};
          if (!plain) {
            w = {.kernel_h = 2, .kernel_w = 3, .stride_h = 3, .stride_w = 2, .dilation_h = 2};
            w.padding_bottom = w.padding_right = w.dilation_w = 3;
            spec.bias = true;
            spec.activation = Activation::kRelu;
          }
          oracle_.CheckConv<T>(random_, spec, tolerance());
        }
      }
    }
  });
}

// Rows shorter than the stride, after which the buffer of x has NaNs.
TEST_P(AnyLibraryTest, ConvOfOneColumn) {
  VisitReal(dtype(), [&]<typename T>() {
    for (const int64_t c : {1, 2, 17}) {
      for (const int64_t w : {1, 2}) {
        for (const int64_t kernel_w : {1, 3}) {
          Conv2dSpec spec{.dtype = dtype(), .n = 3, .h = 4, .w = w, .c = c, .filters = 2};
          spec.window = {.kernel_h = 2, .kernel_w = kernel_w, .stride_w = w + 2};
          spec.window.padding_left = spec.window.padding_right = kernel_w / 2;
          oracle_.CheckConv<T>(random_, spec, tolerance());
        }
      }
    }
  });
}

// A group a channel, in one long row and in many short ones.
TEST_P(AnyLibraryTest, LongSumsOfDepthwiseConv) {
  if (NamedDevice() || dtype() != DType::kF32) GTEST_SKIP();
  constexpr int64_t kMany = 200000, kChannels = 16;
  constexpr float kTerm = 0.731F;
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>(kMany, 1), {1, kMany}}) {
    Conv2dSpec spec{.n = 1, .h = h, .w = w, .c = kChannels, .filters = kChannels};
    spec.groups = kChannels;
    spec.bias = true;
    if (!library_->Prepare(spec).ok()) continue;
    const std::vector<float> ones(kMany * kChannels, 1), terms(kMany * kChannels, kTerm);
    const std::vector<float> of_channel(kChannels, 1);
    const auto out = RunConv<float>(
        rig_, *library_, spec, {.x = ones, .weights = of_channel, .bias = of_channel, .dy = terms});
    for (const float v : out.dbias) EXPECT_NEAR(v / (kMany * kTerm), 1, 1e-5);
    for (const float v : out.dweights) EXPECT_NEAR(v / (kMany * kTerm), 1, 1e-5);
  }
}

// Few channels and filters, kernels of several columns: around the widths of vectors, of runs and
// of tiles, with more images than pieces of a sum, and one of more pixels than a band.
TEST_P(AnyLibraryTest, NarrowConv) {
  if (GetParam().library != Of::kBest || dtype() != DType::kF32) return;
  for (const int64_t c : {1, 3, 17, 20}) {
    for (const int64_t filters : {1, 20, 50}) {
      for (const int64_t n : {0, 1, 11}) {
        Conv2dSpec spec{.dtype = dtype(), .n = n, .h = 7, .w = 13, .c = c, .filters = filters};
        spec.window = {.kernel_h = 3, .kernel_w = 5};
        if (n == 1) {
          spec.h = 20;
          spec.window = {.kernel_h = 4, .kernel_w = 2, .stride_h = 2, .stride_w = 3};
          spec.window.dilation_h = 3;
          spec.bias = true;
          spec.activation = Activation::kRelu;
        }
        oracle_.CheckConv<float>(random_, spec, tolerance());
      }
    }
  }
  Conv2dSpec large{.dtype = dtype(), .n = 1, .h = 75, .w = 35, .c = 1, .filters = 3, .bias = true};
  large.window = {.kernel_h = 2, .kernel_w = 3, .stride_h = 2};
  oracle_.CheckConv<float>(random_, large, tolerance());
}

// Of equal terms, one of a million of which is far below a float's last digit of their sum.
TEST_P(AnyLibraryTest, LongSums) {
  if (NamedDevice()) GTEST_SKIP();
  constexpr int64_t kMany = 1000000;
  constexpr double kTerm = 0.0371;  // F16 has the sum
  VisitReal(dtype(), [&]<typename T>() {
    const double term = static_cast<double>(static_cast<T>(kTerm)), sum = kMany * term;
    const std::vector<T> ones(kMany, T(1)), terms(kMany, static_cast<T>(kTerm));
    const auto expect = [&](const char* what, const std::vector<T>& got, double want) {
      ASSERT_EQ(got.size(), 1u) << what;
      EXPECT_NEAR(static_cast<double>(got[0]) / want, 1, tolerance() + 1e-5) << what;
    };
    const GemmSpec gemm{.dtype = dtype(), .m = 1, .n = 1, .k = kMany, .transpose_a = true};
    // oneDNN's own sums are longer.
    if (dtype() == DType::kF64 || GetParam().library == Of::kReference) {
      expect("gemm", RunGemm<T>(rig_, *library_, gemm, ones, terms, {}), sum);
    }
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>(1000, 1000), {1, kMany}}) {
      Conv2dSpec conv{.dtype = dtype(), .n = 1, .h = h, .w = w, .c = 1, .filters = 1};
      conv.bias = true;
      if (library_->Prepare(conv).ok()) {
        const auto out = RunConv<T>(rig_, *library_, conv,
                                    {.x = ones, .weights = {T(1)}, .bias = {T(0)}, .dy = terms});
        expect("bias", out.dbias, sum);
        if (GetParam().library != Of::kBest) expect("weights", out.dweights, sum);
      }
      Pool2dSpec pool{.dtype = dtype(), .kind = PoolKind::kAverage, .n = 1, .h = h, .w = w, .c = 1};
      pool.window = {.kernel_h = h, .kernel_w = w};
      if (library_->Prepare(pool).ok()) {
        expect("pool", RunPool<T>(rig_, *library_, pool, terms, {T(1)}).y, term);
      }
    }
  });
}

// As AlexNet's first two, on smaller images: what a vendor's library is made for.
TEST_P(AnyLibraryTest, LargerConv) {
  Conv2dSpec first{.dtype = dtype(), .n = 2, .h = 35, .w = 35, .c = 3, .filters = 32};
  first.window = Square(11, /*stride=*/4);
  Conv2dSpec second{.dtype = dtype(), .n = 2, .h = 13, .w = 13, .c = 32, .filters = 48};
  second.window = Square(5, /*stride=*/1, /*padding=*/2);
  first.bias = second.bias = true;
  VisitReal(dtype(), [&]<typename T>() {
    oracle_.CheckConv<T>(random_, second, tolerance());
    oracle_.CheckConv<T>(random_, first, tolerance());
  });
}

// A NaN in the first sample is one in all that comes of it, and nowhere else: of vendors' fused
// ReLUs some are max(x, 0), which drops it.
TEST_P(AnyLibraryTest, ReluHandsNaNOn) {
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
      conv.window.kernel_h = conv.window.kernel_w = 3;
      conv.bias = bias;
      conv.activation = Activation::kRelu;
      Conv2dSpec depthwise = conv;
      depthwise.c = depthwise.groups = conv.filters;
      Conv2dSpec narrow = conv;
      narrow.c = 3, narrow.filters = 20;
      for (const Conv2dSpec& spec : {conv, depthwise, narrow}) {
        ConvInputs<T> in = RandomConvInputs<T>(random_, spec);
        in.x = with_nan(in.x, spec.h * spec.w * spec.c);
        const auto y = RunConv(rig_, *library_, spec, in).y;
        check(y, y.size() / 2, ToString(spec));
      }
    }
  });
}

TEST_P(AnyLibraryTest, Pool) {
  Rounds(RandomPoolSpec, [&]<typename T>(Pool2dSpec spec, int round) {
    if (round % 20 == 0) spec.n = 0;
    if (round % 20 == 1) spec.c = 0;
    oracle_.CheckPool<T>(random_, spec, /*ties=*/round % 2 == 0, tolerance());
  });
}

// A NaN anywhere in a window arrives, and in no other window.
TEST_P(AnyLibraryTest, MaxPoolHandsNaNOn) {
  const int64_t c = 20, kernel_h = 3, kernel_w = 2;
  const Pool2dSpec spec{
      .dtype = dtype(),
      .n = 1,
      .h = 5,
      .w = 4,
      .c = c,
      .window = {.kernel_h = kernel_h, .kernel_w = kernel_w, .stride_h = 2, .padding_top = 1}};
  if (absl::IsUnimplemented(library_->Prepare(spec).status())) return;
  VisitReal(dtype(), [&]<typename T>() {
    const auto x = RandomValues<T>(random_, spec.h * spec.w * c);
    const std::vector<T> dy(static_cast<size_t>(spec.out_h() * spec.out_w() * c), T(1));
    const auto want = RunPool<T>(rig_, *library_, spec, x, dy).y;
    for (int64_t pixel = 0; pixel < spec.h * spec.w; ++pixel) {
      auto with_nan = x;
      with_nan[pixel * c + c - 1] = T(NAN);
      const auto y = RunPool<T>(rig_, *library_, spec, with_nan, dy).y;
      for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
        const int64_t row = pixel / spec.w + 1 - i / c / spec.out_w() * 2;
        const int64_t column = pixel % spec.w - i / c % spec.out_w();
        const bool holds =
            i % c == c - 1 && row >= 0 && row < kernel_h && column >= 0 && column < kernel_w;
        ASSERT_EQ(std::isnan(static_cast<float>(y[i])), holds) << "pixel " << pixel << ", at " << i;
        ASSERT_TRUE(holds || y[i] == want[i]);
      }
    }
  });
}

}  // namespace
}  // namespace gyre
