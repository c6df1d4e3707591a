// oneDNN's convolution against the reference in double, in its own weight layout and in others;
// random ones are any_device_test's.
#include <gtest/gtest.h>
#include <omp.h>

#include "tests/primitives/oracle.h"

namespace gyre {
namespace {

constexpr double kTolerance = 2e-6;  // relative to the sum of absolute values: 33 roundings

class OneDnnTest : public testing::Test {
 protected:
  ConvOutputs<float> ExpectAsReference(const Conv2dSpec& spec) {
    return Oracle(rig_, *library_).CheckConv<float>(random_, spec, kTolerance);
  }

  Rig rig_{kManyThreads};
  const std::unique_ptr<PrimitiveLibrary> library_ = NewOneDnnLibrary(kManyThreads);
  Random random_{20240608};
};

// Of fewer channels than a vector has lanes.
TEST_F(OneDnnTest, StridedPointwiseAsReference) {
  for (const int64_t n : {1, 3, 5, 8}) {
    for (const int64_t c : {8, 9, 15, 24}) {
      ExpectAsReference({.n = n,
                         .h = 28,
                         .w = 28,
                         .c = c,
                         .filters = 16,
                         .window = {.stride_h = 1 + c % 2, .stride_w = 2}});
    }
  }
}

// Between many channels: products, also of strided images.
TEST_F(OneDnnTest, PointwiseAsProductsAsReference) {
  for (const int64_t n : {0, 1, 3}) {
    for (const Window2d& window :
         {Window2d{}, Window2d{.stride_h = 2, .stride_w = 3}, Window2d{.stride_w = 2}}) {
      for (const int64_t c : {64, 256}) {
        Conv2dSpec spec{.n = n, .h = 9, .w = 7, .c = c, .filters = 256 + 64 - c, .window = window};
        if (n == 3) spec.activation = Activation::kRelu;
        if (n == 1 && c == 64) spec.weight_layout = "channels,filters";  // as it would be
        const std::string tag = ExpectAsReference(spec).layout.tag;
        EXPECT_EQ(tag, c == 64 ? "channels,filters" : "");
      }
    }
  }
}

TEST_F(OneDnnTest, PointwiseWithoutProducts) {
  const Conv2dSpec product{.n = 2, .h = 9, .w = 7, .c = 64, .filters = 256};
  const auto tag = [&](auto change) {
    Conv2dSpec spec = product;
    change(spec);
    return Get(library_->Prepare(spec))->weight_layout().tag;
  };
  EXPECT_EQ(tag([](Conv2dSpec& s) { s.train = s.data_gradient = false; }), "channels,filters");
  EXPECT_EQ(tag([](Conv2dSpec& s) { std::swap(s.c, s.filters); }), "");
  for (const std::string& other : {
           tag([](Conv2dSpec& s) { s.c = 32; }),
           tag([](Conv2dSpec& s) { s.c = 96; }),
           tag([](Conv2dSpec& s) { s.filters = 128; }),
           tag([](Conv2dSpec& s) { s.bias = true; }),
           tag([](Conv2dSpec& s) { s.groups = 2; }),
           tag([](Conv2dSpec& s) { s.window.kernel_w = 2; }),
           tag([](Conv2dSpec& s) { s.window.padding_top = 1; }),
           tag([](Conv2dSpec& s) { s.weight_layout = "onednn:abcd"; }),
       }) {
    EXPECT_TRUE(other.starts_with("onednn:")) << other;
  }
}

// Few rows by a matrix of long ones: summed in panels of k.
TEST_F(OneDnnTest, FewRowsByLongOnesAsReference) {
  for (const int64_t m : {1, 64}) {
    const GemmSpec spec{.m = m, .n = 1030, .k = 1300, .activation = Activation::kRelu};
    Oracle(rig_, *library_).CheckGemm<float>(random_, spec, kTolerance);
  }
}

// bfloat16 operands, summed in float; the layout as its own dtype has it, and other ones.
TEST_F(OneDnnTest, BFloat16AsReference) {
  Oracle oracle(rig_, *library_);
  int taken = 0;
  for (int round = 0; round < 200 && !HasFatalFailure(); ++round) {
    Conv2dSpec spec = RandomConvSpec(random_, DType::kBF16);
    if (round % 2 == 0) spec.activation = Activation::kRelu;
    if (round % 20 == 0) spec.n = 0;
    if (round % 3 == 0) spec.weight_layout = spec.groups > 1 ? "onednn:Abcde16a" : "onednn:Acdb16a";
    if (absl::IsUnimplemented(library_->Prepare(spec).status())) continue;
    ++taken;
    const auto out = oracle.CheckConv<BFloat16>(random_, spec, Tolerance(DType::kBF16));
    EXPECT_TRUE(out.layout.tag.starts_with("onednn:")) << out.layout.tag;
    std::vector<std::byte> repacked(out.layout.bytes);
    Check(Get(library_->Prepare(spec))->Pack(out.dweights.data(), repacked.data()));
    EXPECT_EQ(out.opaque_dweights, repacked) << "padding is not zero: " << ToString(spec);
  }
  if (taken == 0) GTEST_SKIP() << "not on this CPU";
  EXPECT_GT(taken, 100) << "of 200";
}

// The parameter's padding is updated with it by optimizers: it must hold zeros, in the gradient as
// well, and survive a trip through the canonical layout.
TEST_F(OneDnnTest, PaddingOfOpaqueWeightsIsZero) {
  int padded = 0;
  for (int round = 0; round < 100; ++round) {
    Conv2dSpec spec = RandomConvSpec(random_, DType::kF32);
    if (round % 10 == 0) spec.n = 0;  // no gradient: all zeros
    const auto conv = Get(library_->Prepare(spec));
    const size_t bytes = conv->weight_layout().bytes;
    padded += bytes > static_cast<size_t>(spec.weights()) * sizeof(float);

    const auto canonical = RandomValues<float>(random_, spec.weights());
    std::vector<float> opaque(bytes / sizeof(float), NAN), unpacked(canonical.size());
    Check(conv->Pack(canonical.data(), opaque.data()));
    Check(conv->Unpack(opaque.data(), unpacked.data()));
    EXPECT_EQ(unpacked, canonical) << ToString(spec);
    EXPECT_EQ(std::count(opaque.begin(), opaque.end(), 0.0f),
              static_cast<int64_t>(opaque.size()) - spec.weights())
        << ToString(spec);

    const auto out = RunConv(rig_, *library_, spec, RandomConvInputs<float>(random_, spec));
    std::vector<std::byte> repacked(bytes);
    Check(conv->Pack(out.dweights.data(), repacked.data()));
    EXPECT_EQ(out.opaque_dweights, repacked) << ToString(spec);
  }
  EXPECT_GT(padded, 10) << "the specs above do not exercise padding";
}

// Another shape of the same layer obeys the layout that the first has chosen.
TEST_F(OneDnnTest, TagBindsAnotherShape) {
  for (int round = 0; round < 60 && !HasFatalFailure(); ++round) {
    Conv2dSpec first = RandomConvSpec(random_, DType::kF32);
    const WeightLayout layout = Get(library_->Prepare(first))->weight_layout();
    EXPECT_TRUE(layout.tag.starts_with("onednn:")) << layout.tag;
    Conv2dSpec second = first;
    second.n = Pick(random_, {0, 1, 7, 16});
    second.h += Pick(random_, {0, 9});
    second.weight_layout = layout.tag;
    const auto out = ExpectAsReference(second);
    EXPECT_EQ(out.layout.tag, layout.tag);
    EXPECT_EQ(out.layout.bytes, layout.bytes);
  }
}

// Layouts that no pass would choose: each reorders through scratch.
TEST_F(OneDnnTest, ForeignLayoutsAreObeyed) {
  for (int round = 0; round < 40 && !HasFatalFailure(); ++round) {
    Conv2dSpec spec = RandomConvSpec(random_, DType::kF32);
    for (const char* tag : {"abcd", "cdba", "Acdb16a", "ABcd16b16a", "ABcd4b4a"}) {
      if (spec.groups > 1) break;
      spec.weight_layout = std::string("onednn:") + tag;
      EXPECT_EQ(ExpectAsReference(spec).layout.tag, spec.weight_layout);
    }
    for (const char* tag : {"abcde", "aBdec16b", "aBCde16c16b", "Abcde16a"}) {
      if (spec.groups == 1) break;
      spec.weight_layout = std::string("onednn:") + tag;
      EXPECT_EQ(ExpectAsReference(spec).layout.tag, spec.weight_layout);
    }
  }
}

TEST_F(OneDnnTest, UnknownLayoutsAreLeftToOthers) {
  Conv2dSpec spec{
      .n = 1, .h = 3, .w = 3, .c = 1, .filters = 2, .window = {.kernel_h = 3, .kernel_w = 3}};
  // Another library's, a name without meaning, a layout of five dimensions.
  for (const char* tag :
       {"x", "others:abcd", "onednn:", "onednn:Zz", "onednn:any", "onednn:abcde"}) {
    spec.weight_layout = tag;
    const auto prepared = library_->Prepare(spec);
    ASSERT_TRUE(absl::IsUnimplemented(prepared.status())) << tag;
    EXPECT_NE(prepared.status().message().find(tag), std::string::npos) << prepared.status();
  }
}

TEST_F(OneDnnTest, SameRunSameBits) {
  Rig sim(kManyThreads, DeviceKind::kSim);
  for (int round = 0; round < 40; ++round) {
    const Conv2dSpec spec = RandomConvSpec(random_, DType::kF32);
    const auto in = RandomConvInputs<float>(random_, spec);
    const auto want = RunConv(rig_, *NewOneDnnLibrary(kManyThreads), spec, in);
    for (Rig* other : {&rig_, &rig_, &sim}) {
      ExpectSameBits(RunConv(*other, *NewOneDnnLibrary(kManyThreads), spec, in), want,
                     ToString(spec));
    }
  }
}

// A library keeps to its thread count, and so to its bits, on a stream that has another.
TEST_F(OneDnnTest, BitsAreThoseOfTheLibrarysThreads) {
  Rig one(1);
  for (int round = 0; round < 40; ++round) {
    const Conv2dSpec spec = RandomConvSpec(random_, DType::kF32);
    const auto in = RandomConvInputs<float>(random_, spec);
    omp_set_num_threads(1);
    const auto got = RunConv(one, *library_, spec, in);
    EXPECT_EQ(omp_get_max_threads(), 1);
    omp_set_num_threads(kManyThreads);
    const auto want = RunConv(rig_, *library_, spec, in);
    ExpectSameBits(got, want, ToString(spec));
  }
}

TEST_F(OneDnnTest, InferenceGivesForwardAlone) {
  for (int round = 0; round < 20; ++round) {
    Conv2dSpec spec = RandomConvSpec(random_, DType::kF32);
    const auto in = RandomConvInputs<float>(random_, spec);
    const auto want = RunConv(rig_, *library_, spec, in);
    spec.train = false;
    spec.weight_layout = want.layout.tag;
    ExpectClose(RunConv(rig_, *library_, spec, in).y, Convert<double>(want.y),
                std::vector<double>(want.y.size(), 200.0), 1e-6, ToString(spec));
  }
}

}  // namespace
}  // namespace gyre
