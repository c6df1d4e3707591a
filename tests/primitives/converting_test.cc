// What the converting library, around oneDNN and around blocks, adds to the inner one; its numbers
// are any_device_test's.
#include <gtest/gtest.h>

#include "tests/primitives/operations.h"

namespace gyre {
namespace {

struct Case {
  DType dtype;
  bool onednn;  // else around blocks
};

class ConvertingTest : public testing::TestWithParam<Case> {
 protected:
  DType dtype() const { return GetParam().dtype; }

  const std::unique_ptr<PrimitiveLibrary> inner_ =
      GetParam().onednn ? NewOneDnnLibrary(kManyThreads) : NewBlockedLibrary();
  const std::unique_ptr<PrimitiveLibrary> library_ = NewConvertingLibrary({inner_.get()});
  Random random_{20240702};
};

INSTANTIATE_TEST_SUITE_P(, ConvertingTest,
                         testing::Values(Case{DType::kF16, true}, Case{DType::kBF16, true},
                                         Case{DType::kF16, false}, Case{DType::kBF16, false}),
                         [](const auto& info) {
                           return std::string(DTypeName(info.param.dtype)) +
                                  (info.param.onednn ? "OneDnn" : "Blocked");
                         });

// The inner operation's order of weights, in elements half as long; its padding stays zero.
TEST_P(ConvertingTest, WeightsKeepTheInnerLayout) {
  VisitReal(dtype(), [&]<typename T>() {
    for (int round = 0; round < 50; ++round) {
      Conv2dSpec spec = RandomConvSpec(random_, dtype());
      const auto conv = Get(library_->Prepare(spec));
      const auto canonical = RandomValues<T>(random_, spec.weights());
      std::vector<T> opaque(conv->weight_layout().bytes / sizeof(T), T(NAN));
      std::vector<T> unpacked(canonical.size());
      Check(conv->Pack(canonical.data(), opaque.data()));
      Check(conv->Unpack(opaque.data(), unpacked.data()));
      EXPECT_EQ(unpacked, canonical);

      spec.dtype = DType::kF32;
      const auto inner = Get(inner_->Prepare(spec));
      EXPECT_EQ(conv->weight_layout().tag, inner->weight_layout().tag);
      EXPECT_EQ(conv->weight_layout().bytes * 2, inner->weight_layout().bytes);
      std::vector<float> wide(opaque.size());
      Check(inner->Pack(Convert<float>(canonical).data(), wide.data()));
      EXPECT_EQ(Convert<float>(opaque), wide) << ToString(spec);
    }
  });
}

TEST_P(ConvertingTest, ATagBindsTheInnerOperation) {
  Conv2dSpec spec{
      .dtype = dtype(), .n = 1, .h = 8, .w = 8, .c = 16, .filters = 16, .window = {.kernel_h = 3}};
  spec.weight_layout = "onednn:abcd";
  const auto prepared = library_->Prepare(spec);
  if (GetParam().onednn) {
    EXPECT_EQ(Get(library_->Prepare(spec))->weight_layout().tag, "onednn:abcd");
  } else {
    EXPECT_TRUE(absl::IsUnimplemented(prepared.status()));
  }
}

// A factor that many products share is converted once, to the same bits.
TEST_P(ConvertingTest, PackedFactorIsConvertedOnce) {
  VisitReal(dtype(), [&]<typename T>() {
    Rig rig(kManyThreads);
    for (const bool transpose_b : {false, true}) {
      GemmSpec spec{.dtype = dtype(), .m = 7, .n = 35, .k = 33, .transpose_b = transpose_b};
      const auto a = RandomValues<T>(random_, spec.m * spec.k);
      const auto b = RandomValues<T>(random_, spec.k * spec.n);
      const auto want = RunGemm<T>(rig, *library_, spec, a, b, {});
      const size_t scratch = Get(library_->Prepare(spec))->scratch_bytes();
      spec.packs_b = true;
      const auto packing = Get(library_->Prepare(spec));
      EXPECT_GE(packing->packed_bytes(), b.size() * sizeof(float));
      EXPECT_EQ(packing->scratch_bytes() + packing->packed_bytes(), scratch) << "in its place";
      EXPECT_EQ(RunGemm<T>(rig, *library_, spec, a, b, {}), want);
    }
  });
}

TEST_P(ConvertingTest, TakesNothingElse) {
  for (const DType other : {DType::kF32, DType::kF64, DType::kI32}) {
    EXPECT_TRUE(absl::IsUnimplemented(library_->Prepare(GemmSpec{.dtype = other}).status()));
  }
  EXPECT_TRUE(absl::IsUnimplemented(
      library_->Prepare(GemmSpec{.dtype = dtype(), .m = 1, .n = 1, .k = 1, .lda = 2}).status()));
  EXPECT_TRUE(absl::IsUnimplemented(
      library_->Prepare(Pool2dSpec{.dtype = dtype(), .n = 1, .h = 1, .w = 1, .c = 1}).status()));
}

TEST(ConvertingLibraryTest, TakesTheFirstInnerLibraryThatTakesTheJob) {
  const auto onednn = NewOneDnnLibrary(1), blocked = NewBlockedLibrary();
  const auto library = NewConvertingLibrary({onednn.get(), blocked.get()});
  Conv2dSpec spec{.dtype = DType::kF16, .n = 1, .h = 8, .w = 8, .c = 16, .filters = 16};
  EXPECT_TRUE(Get(library->Prepare(spec))->weight_layout().tag.starts_with("onednn:"));
  spec.c = 0;  // not oneDNN's
  EXPECT_EQ(Get(library->Prepare(spec))->weight_layout().tag, "");
  EXPECT_TRUE(absl::IsUnimplemented(NewConvertingLibrary({})->Prepare(spec).status()));
}

}  // namespace
}  // namespace gyre
