// The choice among libraries, validation, and the arithmetic of specs.
#include <gtest/gtest.h>

#include "tests/primitives/operations.h"
#include "tests/runtime/instruction_sets.h"

namespace gyre {
namespace {

// Takes nothing, or fails with a fixed error.
class FakeLibrary : public PrimitiveLibrary {
 public:
  FakeLibrary(absl::Status status, std::string choices)
      : status_(std::move(status)), choices_(std::move(choices)) {}
  std::string_view name() const override { return "fake"; }
  std::string choices() const override { return choices_; }
  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec&) const override { return status_; }

 private:
  const absl::Status status_;
  const std::string choices_;
};

template <typename... Libraries>
Primitives Of(Libraries... libraries) {
  std::vector<std::unique_ptr<PrimitiveLibrary>> list;
  (list.push_back(std::move(libraries)), ...);
  return Primitives(DeviceKind::kCpu, std::move(list));
}

std::unique_ptr<PrimitiveLibrary> Fake(absl::Status status, std::string choices = "") {
  return std::make_unique<FakeLibrary>(std::move(status), std::move(choices));
}

TEST(PrimitivesTest, TakesTheFirstThatTakesTheJob) {
  const Primitives primitives = Of(Fake(absl::UnimplementedError("not mine")), NewBlockedLibrary());
  EXPECT_TRUE(primitives.Prepare(GemmSpec{.m = 1, .n = 1, .k = 1}).ok());
}

TEST(PrimitivesTest, AnErrorIsNotSkipped) {
  const Primitives primitives = Of(Fake(absl::InternalError("broken")), NewBlockedLibrary());
  EXPECT_EQ(primitives.Prepare(GemmSpec{}).status(), absl::InternalError("broken"));
}

// A library that says nothing of an operation leaves it to others.
TEST(PrimitivesTest, WhatIsNotOverriddenIsLeftToOthers) {
  const auto library = Fake(absl::InternalError("broken"));
  EXPECT_EQ(library->Prepare(BatchNormSpec{.rows = 2, .channels = 3, .epsilon = 1}).status(),
            absl::UnimplementedError("batch_norm F32 [2, 3]: not by fake"));
  EXPECT_TRUE(absl::IsInvalidArgument(library->Prepare(BatchNormSpec{.rows = -1}).status()));
}

TEST(PrimitivesTest, NobodyTakesIt) {
  const Primitives primitives = Of(Fake(absl::UnimplementedError("not mine")));
  EXPECT_EQ(
      primitives.Prepare(GemmSpec{.m = 2, .n = 3, .k = 4}).status(),
      absl::UnimplementedError("no library of this device implements gemm F32 [2, 4] x [4, 3]"));
}

TEST(PrimitivesTest, EveryRealTypeIsTakenAndNoOther) {
  const Primitives primitives(DeviceKind::kCpu, 1);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    Check(primitives.Prepare(GemmSpec{.dtype = dtype, .m = 1, .n = 1, .k = 1}).status());
    Check(primitives.Prepare(Conv2dSpec{.dtype = dtype, .n = 1, .h = 1, .w = 1, .c = 1}).status());
    Check(primitives.Prepare(Pool2dSpec{.dtype = dtype, .n = 1, .h = 1, .w = 1, .c = 1}).status());
  }
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kU8}) {
    EXPECT_TRUE(absl::IsUnimplemented(primitives.Prepare(GemmSpec{.dtype = dtype}).status()));
  }
}

// Ranks with different shares of a batch add their gradients byte by byte.
TEST(PrimitivesTest, WeightLayoutsDoNotDependOnTheBatch) {
  const Primitives primitives(DeviceKind::kCpu, kManyThreads);
  Random random(3);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int round = 0; round < 50; ++round) {
      Conv2dSpec spec = RandomConvSpec(random, dtype);
      const WeightLayout layout = Get(primitives.Prepare(spec))->weight_layout();
      for (const int64_t n : {0, 1, 2, 64}) {
        spec.n = n;
        const auto conv = Get(primitives.Prepare(spec));
        EXPECT_EQ(conv->weight_layout().tag, layout.tag) << ToString(spec);
        EXPECT_EQ(conv->weight_layout().bytes, layout.bytes) << ToString(spec);
      }
    }
  }
}

TEST(PrimitivesTest, ChoicesAreThoseOfAllLibraries) {
  const absl::Status none = absl::UnimplementedError("");
  EXPECT_EQ(Of(Fake(none, "a\nb\n"), NewBlockedLibrary(), Fake(none, "c\n")).choices(),
            "a\nb\nc\n");
  const std::string one = Primitives(DeviceKind::kCpu, 1).choices();
  EXPECT_NE(one.find("onednn "), one.npos) << one;
  EXPECT_NE(one.find("\nloops "), one.npos) << one;
  EXPECT_EQ(one, Primitives(DeviceKind::kSim, 1).choices());
  EXPECT_NE(one, Primitives(DeviceKind::kCpu, 2).choices()) << "threads change the order of sums";
}

TEST(PrimitivesTest, F32IsOneDnnsAndF64Ours) {
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kSim}) {
    const Primitives primitives(device, 1);
    Conv2dSpec spec{.n = 1, .h = 8, .w = 8, .c = 16, .filters = 16, .window = Square(3)};
    EXPECT_TRUE(Get(primitives.Prepare(spec))->weight_layout().tag.starts_with("onednn:"));
    spec.dtype = DType::kF64;
    EXPECT_EQ(Get(primitives.Prepare(spec))->weight_layout().tag, "");
    spec.weight_layout = "onednn:abcd";  // ours keep to their own
    EXPECT_TRUE(absl::IsUnimplemented(primitives.Prepare(spec).status()));
  }
}

// Ours for every type but the BF16 of oneDNN, unless oneDNN's layout is asked for.
TEST(PrimitivesTest, DepthwiseIsOurs) {
  const Primitives primitives(DeviceKind::kCpu, 1);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16}) {
    Conv2dSpec spec{.dtype = dtype, .n = 1, .h = 8, .w = 8, .c = 16, .filters = 16, .groups = 16};
    for (const char* tag : {"", "taps,channels"}) {
      spec.weight_layout = tag;
      EXPECT_EQ(Get(primitives.Prepare(spec))->weight_layout().tag, "taps,channels");
    }
    spec.filters = 32;
    EXPECT_TRUE(absl::IsUnimplemented(primitives.Prepare(spec).status()));
  }
  Conv2dSpec spec{.n = 1, .h = 8, .w = 8, .c = 16, .filters = 16, .groups = 16};
  spec.weight_layout = "onednn:abcde";
  EXPECT_EQ(Get(primitives.Prepare(spec))->weight_layout().tag, spec.weight_layout);
  // But not with few channels, nor where a walk over the taps would take memory and time.
  for (const auto& [c, h] : {std::pair<int64_t, int64_t>{3, 8}, {16, 1 << 22}}) {
    Conv2dSpec other{.n = 1, .h = h, .w = 8, .c = c, .filters = c, .groups = c};
    EXPECT_NE(Get(primitives.Prepare(other))->weight_layout().tag, "taps,channels");
  }
}

// Of F32 where there is AVX-512, both ends fill little of a vector, and no zeros lie round the
// image.
TEST(PrimitivesTest, NarrowIsOurs) {
  const Primitives primitives(DeviceKind::kCpu, 1);
  constexpr std::string_view kOurs = "rows,filters,runs";
  const bool avx512 = BestInstructionSet() == InstructionSet::kAvx512;
  const Conv2dSpec narrow{.n = 2, .h = 9, .w = 9, .c = 20, .filters = 50, .window = Square(5)};
  const auto is_ours = [&](auto change) {
    Conv2dSpec spec = narrow;
    change(spec);
    return Get(primitives.Prepare(spec))->weight_layout().tag == kOurs;
  };
  EXPECT_EQ(primitives.choices().find("narrow avx512\n") != std::string::npos, avx512);
  EXPECT_EQ(is_ours([](Conv2dSpec&) {}), avx512);
  EXPECT_EQ(is_ours([](Conv2dSpec& s) { s.c = 1, s.filters = 20; }), avx512);
  EXPECT_EQ(is_ours([](Conv2dSpec& s) { s.window.dilation_h = s.window.stride_w = 2; }), avx512);
  EXPECT_FALSE(is_ours([](Conv2dSpec& s) { s.dtype = DType::kF64; }));
  for (const int64_t c : {5, 16, 21, 33}) {
    EXPECT_FALSE(is_ours([&](Conv2dSpec& s) { s.c = c; })) << c;
  }
  for (const int64_t filters : {5, 32, 53, 65}) {
    EXPECT_FALSE(is_ours([&](Conv2dSpec& s) { s.filters = filters; })) << filters;
  }
  EXPECT_FALSE(is_ours([](Conv2dSpec& s) { s.groups = 2; }));
  EXPECT_FALSE(is_ours([](Conv2dSpec& s) { s.window.kernel_w = 1; }));
  EXPECT_FALSE(is_ours([](Conv2dSpec& s) { s.window.kernel_h = s.h = 17; }));
  EXPECT_FALSE(is_ours([](Conv2dSpec& s) { s.window.dilation_w = 2; }));
  EXPECT_FALSE(is_ours([](Conv2dSpec& s) { s.window.padding_left = 1; }));
  EXPECT_FALSE(is_ours([](Conv2dSpec& s) { s.weight_layout = "onednn:abcd"; }));
  if (!avx512) return;
  SetInstructionSet(InstructionSet::kAvx2);
  EXPECT_FALSE(is_ours([](Conv2dSpec&) {}));
  EXPECT_EQ(primitives.choices().find("narrow"), std::string::npos);
  SetInstructionSet(InstructionSet::kAvx512);
}

// On each rig as on the first.
void ExpectSameBits(const PrimitiveLibrary& library, const Conv2dSpec& spec, Random& random,
                    Rig& first, std::initializer_list<Rig*> rigs) {
  const auto in = RandomConvInputs<float>(random, spec);
  const auto want = RunConv(first, library, spec, in);
  for (Rig* rig : rigs) ExpectSameBits(RunConv(*rig, library, spec, in), want, ToString(spec));
}

TEST(PrimitivesTest, ThreadsAndInstructionsDoNotChangeTheBitsOfDepthwise) {
  Rig one(1), many(kManyThreads);
  Random random(10);
  const Primitives primitives(DeviceKind::kCpu, 1);
  for (const int64_t c : {16, 35, 144}) {
    Conv2dSpec spec{.n = 5, .h = 13, .w = 9, .c = c, .filters = c, .groups = c, .bias = true};
    spec.window = {.kernel_h = 3, .kernel_w = 3, .stride_w = 2, .padding_top = 1};
    const auto in = RandomConvInputs<float>(random, spec);
    const auto want = RunConv(one, Chosen(primitives), spec, in);
    WithEachInstructionSet([&] {
      for (Rig* rig : {&one, &many}) {
        ExpectSameBits(RunConv(*rig, Chosen(primitives), spec, in), want, ToString(spec));
      }
    });
  }
}

// Sums of 16 bits stay in F32 until all windows are added, as the reference has them.
TEST(PrimitivesTest, PoolsOf16BitsAsTheReferenceToTheBit) {
  Rig rig(kManyThreads);
  Random random(11);
  const auto ours = NewBlockedLibrary(), reference = NewReferenceLibrary();
  const auto check = [&]<typename T>(DType dtype) {
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      for (const int64_t c : {1, 5, 16, 39}) {
        for (const int64_t kernel : {2, 3, 17}) {
          Pool2dSpec spec{.dtype = dtype, .n = 2, .h = 19, .w = 18, .c = c};
          spec.kind = kind;
          spec.window = {.kernel_h = kernel,
                         .kernel_w = kernel,
                         .stride_h = 2,
                         .stride_w = 1,
                         .padding_top = 1,
                         .padding_right = 1};
          const auto x = RandomValues<T>(random, spec.n * spec.h * spec.w * spec.c);
          const auto dy = RandomValues<T>(random, spec.n * spec.out_h() * spec.out_w() * spec.c);
          const auto want = RunPool<T>(rig, *reference, spec, x, dy);
          WithEachInstructionSet([&] {
            const auto got = RunPool<T>(rig, *ours, spec, x, dy);
            EXPECT_EQ(Convert<float>(got.y), Convert<float>(want.y)) << ToString(spec);
            EXPECT_EQ(Convert<float>(got.dx), Convert<float>(want.dx)) << ToString(spec);
          });
        }
      }
    }
  };
  check.template operator()<Half>(DType::kF16);
  check.template operator()<BFloat16>(DType::kBF16);
}

TEST(SpecTest, ExtentsAndFlops) {
  Conv2dSpec conv{.n = 2,
                  .h = 28,
                  .w = 20,
                  .c = 6,
                  .filters = 4,
                  .window = {.kernel_h = 5,
                             .kernel_w = 3,
                             .stride_h = 2,
                             .dilation_h = 2,
                             .padding_top = 1,
                             .padding_bottom = 2,
                             .padding_right = 1},
                  .groups = 2,
                  .bias = true};
  EXPECT_EQ(conv.out_h(), (28 + 3 - 9) / 2 + 1);
  EXPECT_EQ(conv.out_w(), 19);
  EXPECT_EQ(conv.weights(), 4 * 3 * 5 * 3);
  EXPECT_EQ(conv.forward_flops(), 2.0 * 12 * 19 * 4 * (2 * 3 * 5 * 3 + 1));
  conv.h = 5;  // one short of the dilated kernel
  EXPECT_EQ(conv.out_h(), 0);
  const Pool2dSpec pool{.h = 7, .w = 2, .window = Square(3, /*stride=*/2)};
  EXPECT_EQ(pool.out_h(), 3);
  EXPECT_EQ(pool.out_w(), 0);
}

// Every library refuses what is invalid, with the spec and the reason.
template <typename Spec>
void ExpectInvalid(const Spec& spec, const std::string& reason) {
  for (const auto& library : {NewOneDnnLibrary(1), NewBlockedLibrary(), NewReferenceLibrary(),
                              NewConvertingLibrary({})}) {
    EXPECT_EQ(library->Prepare(spec).status(),
              absl::InvalidArgumentError(ToString(spec) + ": " + reason));
  }
}

// Of a good spec, what a change makes of it.
template <typename Spec>
auto Spoiling(const Spec& good) {
  return [good](auto change, const std::string& reason) {
    Spec spec = good;
    change(spec);
    ExpectInvalid(spec, reason);
  };
}

TEST(ValidateTest, Gemm) {
  const GemmSpec good{.m = 2, .n = 3, .k = 4};
  const auto invalid = Spoiling(good);
  invalid([](GemmSpec& s) { s.m = -1; }, "extents must not be negative");
  invalid([](GemmSpec& s) { s.n = -1; }, "extents must not be negative");
  invalid([](GemmSpec& s) { s.k = -1; }, "extents must not be negative");
  invalid([](GemmSpec& s) { s.outer.count = -1; }, "extents must not be negative");
  invalid([](GemmSpec& s) { s.inner = {.count = -2, .c = 6}; }, "extents must not be negative");
  invalid([](GemmSpec& s) { s.inner.b = -1; }, "batches must not go backwards");
  const std::string too_short = "leading dimensions must not be shorter than rows";
  invalid([](GemmSpec& s) { s.lda = 3; }, too_short);
  invalid([](GemmSpec& s) { s.ldb = -3; }, too_short);
  invalid([](GemmSpec& s) { s.ldc = 2; }, too_short);
  invalid([](GemmSpec& s) { s.lda = 1, s.transpose_a = true; }, too_short);
  invalid([](GemmSpec& s) { s.ldb = 3, s.transpose_b = true; }, too_short);
  invalid([](GemmSpec& s) { s.inner.count = 2; }, "outputs overlap");
  invalid([](GemmSpec& s) { s.outer = {.count = 2, .c = 5}; }, "outputs overlap");
  // Side by side, but one too many; and rows of one that are rows of the next.
  invalid([](GemmSpec& s) { s.ldc = 8, s.inner = {.count = 3, .c = 3}; }, "outputs overlap");
  invalid([](GemmSpec& s) { s.ldc = 8, s.inner = {.count = 2, .c = 8}; }, "outputs overlap");
  GemmSpec parts = good;
  parts.ldc = 6;
  parts.outer = {.count = 5, .a = 8, .c = 12};
  parts.inner = {.count = 2, .b = 12, .c = 3};
  parts.accumulate = true;
  Check(Validate(parts));
  EXPECT_EQ(ToString(parts),
            "gemm F32 [2, 4] x [4, 3], rows 4, 3, 6, batch 5 by 8, 0, 12 x 2 by 0, 12, 3, added to "
            "c");
}

TEST(ValidateTest, Conv) {
  const Conv2dSpec good{.n = 1, .h = 4, .w = 4, .c = 6, .filters = 9, .window = Square(3)};
  const auto invalid = Spoiling(good);
  EXPECT_TRUE(Validate(good).ok());
  invalid([](Conv2dSpec& s) { s.n = -1; }, "extents must not be negative");
  invalid([](Conv2dSpec& s) { s.filters = -1; }, "extents must not be negative");
  invalid([](Conv2dSpec& s) { s.window.kernel_h = 0; }, "kernel and stride must be at least 1");
  invalid([](Conv2dSpec& s) { s.window.stride_w = 0; }, "kernel and stride must be at least 1");
  invalid([](Conv2dSpec& s) { s.window.dilation_h = 0; }, "dilation must be at least 1");
  invalid([](Conv2dSpec& s) { s.window.padding_left = -1; }, "padding must not be negative");
  invalid([](Conv2dSpec& s) { s.groups = 0; }, "groups must divide the channels and the filters");
  invalid([](Conv2dSpec& s) { s.groups = 2; }, "groups must divide the channels and the filters");
  invalid([](Conv2dSpec& s) { s.groups = 9; }, "groups must divide the channels and the filters");
  invalid([](Conv2dSpec& s) { s.window.kernel_h = 5; }, "the kernel exceeds the padded image");
  invalid([](Conv2dSpec& s) { s.window.dilation_w = 2; }, "the kernel exceeds the padded image");
}

TEST(ValidateTest, Pool) {
  const Pool2dSpec good{.n = 1, .h = 4, .w = 4, .c = 6, .window = Square(3)};
  const auto invalid = Spoiling(good);
  EXPECT_TRUE(Validate(good).ok());
  invalid([](Pool2dSpec& s) { s.c = -1; }, "extents must not be negative");
  invalid([](Pool2dSpec& s) { s.w = 0; }, "an image needs at least one pixel");
  invalid([](Pool2dSpec& s) { s.window.stride_h = 0; }, "kernel and stride must be at least 1");
  invalid([](Pool2dSpec& s) { s.window.padding_right = -1; }, "padding must not be negative");
  invalid([](Pool2dSpec& s) { s.window.dilation_h = 2; }, "pooling has no dilation");
  invalid([](Pool2dSpec& s) { s.window.padding_top = 3; },
          "padding must be smaller than the window");
  invalid([](Pool2dSpec& s) { s.window.padding_right = 3; },
          "padding must be smaller than the window");
  invalid([](Pool2dSpec& s) { s.window.kernel_w = 5; }, "the window exceeds the padded image");
}

TEST(PrimitivesTest, InferencePoolSavesNothing) {
  const Primitives primitives(DeviceKind::kCpu, kManyThreads);
  const Chosen chosen(primitives);
  Rig rig(kManyThreads);
  Random random(5);
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
      VisitComputeType(dtype, [&]<typename T>() {
        Pool2dSpec spec{.dtype = dtype, .kind = kind, .n = 2, .h = 6, .w = 6, .c = 20};
        spec.window = Square(2, /*stride=*/2);
        const auto x = RandomValues<T>(random, 2 * 6 * 6 * 20);
        const auto want = RunPool(rig, chosen, spec, x, std::vector<T>(2 * 3 * 3 * 20)).y;
        spec.train = false;
        const auto pool = Get(primitives.Prepare(spec));
        EXPECT_EQ(pool->saved_bytes(), 0);
        const Rig::Bytes device_x(rig, x), y(rig, want.size() * sizeof(T));
        Check(pool->Forward(rig.stream(), device_x.data(), y.data(), nullptr));
        EXPECT_EQ(y.template Read<T>(), want);
      });
    }
  }
}

// The bits of a sum depend on its order alone, and that on the extents alone.
TEST(PrimitivesTest, ThreadsDoNotChangeTheBitsOfOurOwnLibraries) {
  Rig one(1), many(kManyThreads), three(kManyThreads == 1 ? 1 : 3, DeviceKind::kSim);
  Random random(9);
  for (const auto& library : {NewBlockedLibrary(), NewReferenceLibrary()}) {
    for (int round = 0; round < 30; ++round) {
      ExpectSameBits(*library, RandomConvSpec(random, DType::kF32), random, one, {&many, &three});
    }
    const GemmSpec gemm{.m = 77, .n = 131, .k = 300};
    const auto a = RandomValues<float>(random, 77 * 300),
               b = RandomValues<float>(random, 300 * 131);
    EXPECT_EQ(RunGemm<float>(one, *library, gemm, a, b, {}),
              RunGemm<float>(three, *library, gemm, a, b, {}));
  }
  const Primitives best(DeviceKind::kCpu, 1);
  for (const int64_t c : {1, 20}) {  // narrow
    Conv2dSpec spec{.n = 11, .h = 9, .w = 13, .c = c, .filters = 50, .bias = true};
    spec.window = {.kernel_h = 3, .kernel_w = 5};
    ExpectSameBits(Chosen(best), spec, random, one, {&many, &three});
  }
}

}  // namespace
}  // namespace gyre
