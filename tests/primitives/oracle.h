// oracle.h: holds any library, on any device, to the reference in double precision on a CPU.
#pragma once

#include "tests/primitives/operations.h"

namespace gyre {

// The error that a sum of a few thousand products may have, relative to the sum of their absolute
// values: 33 roundings of a float; for 16-bit types, which are summed in float, one rounding to
// nearest of the result and the same 33 of the sum.
inline double Tolerance(DType dtype) {
  constexpr double kF32 = 2e-6;
  switch (dtype) {
    case DType::kF64:
      return 1e-14;
    case DType::kF16:
      return 0x1p-11 + kF32;
    case DType::kBF16:
      return 0x1p-8 + kF32;
    default:
      return kF32;
  }
}

// Each of the Check functions runs a spec on random operands; T is the C++ type of its dtype.
// `relative` is as ExpectClose's.
class Oracle {
 public:
  Oracle(Rig& rig, const PrimitiveLibrary& library) : rig_(rig), library_(library) {}

  template <typename T>
  std::vector<T> CheckGemm(Random& random, const GemmSpec& spec, double relative,
                           int64_t left_out = 0) {
    const GemmSpans spans(spec);
    const auto a = RandomValues<T>(random, spans.a), b = RandomValues<T>(random, spans.b);
    const auto bias = RandomValues<T>(random, spec.bias ? spec.n : 0);
    auto c = RandomValues<T>(random, spans.c);
    if (!spec.accumulate) AssignNaN(spec, c);
    const GemmSpec precise = Precise(spec);
    const auto a64 = Convert<double>(a), b64 = Convert<double>(b), bias64 = Convert<double>(bias);
    const auto c64 = Convert<double>(c);
    const auto got = RunGemm<T>(rig_, library_, spec, a, b, bias, c, left_out);
    ExpectClose(got, RunGemm(cpu_, *reference_, precise, a64, b64, bias64, c64),
                RunGemm(cpu_, *reference_, precise, Absolute(a64), Absolute(b64), Absolute(bias64),
                        Absolute(c64)),
                relative, ToString(spec));
    return got;
  }

  // Of a spec with wide_c.
  template <typename T>
  void CheckWideGemm(Random& random, const GemmSpec& spec, double relative) {
    const GemmSpans spans(spec);
    const auto a = RandomValues<T>(random, spans.a), b = RandomValues<T>(random, spans.b);
    const auto c = RandomValues<float>(random, spans.c);
    const auto gemm = Get(library_.Prepare(spec));
    const Rig::Bytes device_a(rig_, a), device_b(rig_, b), device_c(rig_, c);
    const Rig::Bytes scratch(rig_, gemm->scratch_bytes());
    Check(gemm->Run(rig_.stream(), device_a.data(), device_b.data(), nullptr, device_c.data(),
                    scratch.data()));
    GemmSpec precise = Precise(spec);
    precise.wide_c = false;
    const auto a64 = Convert<double>(a), b64 = Convert<double>(b), c64 = Convert<double>(c);
    ExpectClose(
        device_c.Read<float>(), RunGemm(cpu_, *reference_, precise, a64, b64, {}, c64),
        RunGemm(cpu_, *reference_, precise, Absolute(a64), Absolute(b64), {}, Absolute(c64)),
        relative, ToString(spec));
  }

  template <typename T>
  ConvOutputs<T> CheckConv(Random& random, const Conv2dSpec& spec, double relative) {
    const auto in = RandomConvInputs<T>(random, spec);
    const auto precise = Convert<double>(in);
    Conv2dSpec precise_spec = Precise(spec);
    precise_spec.weight_layout.clear();
    const auto got = RunConv(rig_, library_, spec, in);
    ExpectClose(got, RunConv(cpu_, *reference_, precise_spec, precise),
                RunConv(cpu_, *reference_, precise_spec, Absolute(precise)), relative,
                ToString(spec));
    return got;
  }

  // ties: operands of a few different values, all negative.
  template <typename T>
  PoolOutputs<T> CheckPool(Random& random, const Pool2dSpec& spec, bool ties, double relative) {
    auto x = RandomValues<T>(random, spec.n * spec.h * spec.w * spec.c);
    if (ties) {
      for (T& value : x) value = static_cast<T>(std::floor(3 * value) - 3);
    }
    const auto dy = RandomValues<T>(random, spec.n * spec.out_h() * spec.out_w() * spec.c);
    const auto got = RunPool<T>(rig_, library_, spec, x, dy);
    const auto want =
        RunPool(cpu_, *reference_, Precise(spec), Convert<double>(x), Convert<double>(dy));
    // x is 6 at most; gradients of at most the windows that hold a pixel are added.
    const std::vector<double> six(want.y.size(), 6.0), sixteen(want.dx.size(), 16.0);
    ExpectClose(got.y, want.y, six, relative, ToString(spec) + ": y");
    ExpectClose(got.dx, want.dx, sixteen, relative, ToString(spec) + ": dx");
    return got;
  }

 private:
  // To what a product assigns, and not in between.
  template <typename T>
  static void AssignNaN(const GemmSpec& spec, std::vector<T>& c) {
    ForEachProduct(spec, [&](int64_t, int64_t, int64_t at) {
      for (int64_t row = 0; row < spec.m; ++row) {
        std::fill_n(c.begin() + at + row * spec.row_c(), spec.n, static_cast<T>(NAN));
      }
    });
  }

  template <typename Spec>
  static Spec Precise(Spec spec) {
    spec.dtype = DType::kF64;
    return spec;
  }

  Rig& rig_;
  const PrimitiveLibrary& library_;
  Rig cpu_{kManyThreads};
  const std::unique_ptr<PrimitiveLibrary> reference_ = NewReferenceLibrary();
};

}  // namespace gyre
