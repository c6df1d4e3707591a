// Convolution by cuDNN, on a fake that computes from what it is told, and on cuDNN itself as far as
// it goes without a GPU.
#include <gtest/gtest.h>

#include "engine/runtime/device/cuda/cuda_device.h"
#include "tests/cuda/fakes/described_gpu.h"
#include "tests/cuda/fakes/fake_cudart.h"
#include "tests/cuda/primitives_fixture.h"
#include "tests/primitives/oracle.h"

namespace gyre {
namespace {

// Of a result that was computed in double: two roundings to T, where bias and activation are added
// to what was stored.  The sums of dbias are made of floats.
template <typename T>
constexpr double kTolerance = 1e-6;
template <>
constexpr double kTolerance<Half> = 0x1p-10;
template <>
constexpr double kTolerance<BFloat16> = 0x1p-7;

// cudnnBackendNumericalNote_t
constexpr int kTensorCore = 0, kStrictNanPropagation = 9, kNotes = 10;

constexpr Conv2dSpec kSmall{.n = 2,
                            .h = 5,
                            .w = 6,
                            .c = 4,
                            .filters = 8,
                            .window = {.kernel_h = 3, .kernel_w = 2},
                            .bias = true,
                            .weight_layout = {}};

Conv2dSpec UnequallyPadded() {
  Conv2dSpec spec = kSmall;
  spec.window.padding_bottom = 1;
  spec.window.padding_left = 3;
  return spec;
}

class CudaConvTest : public CudaPrimitivesTest {
 protected:
  Conv2dSpec RandomSpec(DType dtype) {
    Conv2dSpec spec = RandomConvSpec(random_, dtype);
    if (Pick(random_, {0, 1}) != 0) spec.activation = Activation::kRelu;
    return spec;
  }

  template <typename T>
  void ExpectAsReference(const PrimitiveLibrary& library, const Conv2dSpec& spec) {
    const auto got = Oracle(rig_, library).CheckConv<T>(random_, spec, kTolerance<T>);
    EXPECT_EQ(got.layout.tag, "ohwi");
    EXPECT_EQ(got.layout.bytes, static_cast<size_t>(spec.weights()) * sizeof(T));
  }

  void ExpectAllTypesAsReference(const PrimitiveLibrary& library, int rounds) {
    for (int round = 0; round < rounds && !HasFatalFailure(); ++round) {
      ExpectAsReference<float>(library, RandomSpec(DType::kF32));
      ExpectAsReference<Half>(library, RandomSpec(DType::kF16));
      ExpectAsReference<BFloat16>(library, RandomSpec(DType::kBF16));
    }
  }

  // The engine that the spec's forward is prepared for.
  int64_t EngineOf(const PrimitiveLibrary& library, const Conv2dSpec& spec) {
    const auto conv = Get(library.Prepare(spec));
    const Rig::Bytes memory(rig_, 1 << 16), scratch(rig_, conv->scratch_bytes());
    void* const data = memory.data();
    Check(conv->Forward(rig_.stream(), data, data, data, data, scratch.data()));
    return cudnn_.runs.back();
  }

  Random random_{20241122};
};

TEST_F(CudaConvTest, RandomConvolutionsAsReference) {
  ExpectAllTypesAsReference(*NewLibrary(), 60);
}

TEST_F(CudaConvTest, BiasAndActivationApartAsReference) {
  for (auto& engine : cudnn_.engines) engine.fuses = false;
  for (auto& engine : cudnn_.fallback_engines) engine.fuses = false;
  const auto library = NewLibrary();
  ExpectAllTypesAsReference(*library, 40);
  EXPECT_NE(library->choices().find("bias and activation apart"), std::string::npos);
}

// Not the one that computes wrong sums from it.
TEST_F(CudaConvTest, PaddingThatDiffersIsZerosInMemory) {
  const auto library = NewLibrary();
  ExpectAsReference<float>(*library, UnequallyPadded());
  Conv2dSpec spec = UnequallyPadded();
  spec.dtype = DType::kF16;
  spec.activation = Activation::kRelu;
  spec.window.stride_h = 2, spec.window.dilation_w = 2, spec.window.padding_right = 5;
  ExpectAsReference<Half>(*library, spec);
  spec.train = false;
  EXPECT_EQ(EngineOf(*library, spec), 2);
}

// A selector, which can try it, is offered ReLU in the graph as well.
TEST_F(CudaConvTest, ReluHandsNaNOn) {
  class : public CudaSelector {
   public:
    size_t most_candidates() const override { return 8; }
    absl::StatusOr<size_t> Select(const CudaTrial& trial) override {
      return trial.candidates.size() - 1;
    }
  } last;
  cudnn_.engines = {{.index = 50, .swallows_nan = true}};
  cudnn_.fallback_engines = {};
  Conv2dSpec spec = kSmall;
  spec.activation = Activation::kRelu;
  for (const bool select : {false, true}) {
    ConvInputs<float> in = RandomConvInputs<float>(random_, spec);
    in.x.assign(in.x.size(), NAN);
    const auto library = NewLibrary({.selector = select ? &last : nullptr});
    for (const float y : RunConv(rig_, *library, spec, in).y) EXPECT_NE(std::isnan(y), select);
    EXPECT_EQ(library->choices().find("apart") == std::string::npos, select) << library->choices();
  }
}

TEST_F(CudaConvTest, ChoosesByNumericalNotes) {
  const auto f32 = NewLibrary(), tf32 = NewLibrary({.tf32 = true});
  Conv2dSpec half = kSmall;
  half.dtype = DType::kF16;
  // 1 is not deterministic, 2 uses tensor cores, 3 wants too much workspace, 4 transforms, 5 has no
  // plan.
  EXPECT_EQ(EngineOf(*f32, kSmall), 6);
  EXPECT_EQ(EngineOf(*tf32, kSmall), 2);
  EXPECT_EQ(EngineOf(*f32, half), 2);
  for (int note = 0; note < kNotes; ++note) {
    cudnn_.engines = {{.index = 50, .notes = {note}}};
    const bool harmless = note == kStrictNanPropagation;
    EXPECT_EQ(EngineOf(*f32, kSmall), harmless ? 50 : 7) << note;
    EXPECT_EQ(EngineOf(*tf32, kSmall), harmless || note == kTensorCore ? 50 : 7) << note;
    EXPECT_EQ(EngineOf(*f32, half), harmless || note == kTensorCore ? 50 : 7) << note;
  }
}

TEST_F(CudaConvTest, WorkspaceLimit) {
  const auto library = NewLibrary();
  // x and weights have 4 channels, which may be padded to 8; y has 8.
  const int64_t elements = kSmall.n * kSmall.h * kSmall.w * 8 + kSmall.weights() * 2 +
                           kSmall.n * kSmall.out_h() * kSmall.out_w() * kSmall.filters;
  const size_t limit = static_cast<size_t>(elements) * 4 + (32 << 20);
  cudnn_.engines = {{.index = 50, .workspace_bytes = limit}};
  EXPECT_EQ(EngineOf(*library, kSmall), 50);
  cudnn_.engines[0].workspace_bytes = limit + 1;
  EXPECT_EQ(EngineOf(*library, kSmall), 7);
}

// The workspace is written to its last byte, between canaries, whatever scratch's alignment.
TEST_F(CudaConvTest, ScratchIsEnoughForTheWorkspace) {
  const auto library = NewLibrary();
  const Rig::Bytes memory(rig_, 1 << 16);
  void* const data = memory.data();
  for (const size_t workspace_bytes : {1, 15, 16, 131, 256, 1000}) {
    cudnn_.engines = {{.index = 50, .workspace_bytes = workspace_bytes}};
    for (const Conv2dSpec& spec : {kSmall, UnequallyPadded()}) {
      const auto conv = Get(library->Prepare(spec));
      for (const size_t offset : {0, 64, 128, 192}) {
        const Rig::Bytes scratch(rig_, offset + conv->scratch_bytes());
        void* const at = static_cast<std::byte*>(scratch.data()) + offset;
        Check(conv->Forward(rig_.stream(), data, data, data, data, at));
        Check(conv->BackwardData(rig_.stream(), data, data, data, at));
      }
    }
  }
}

TEST_F(CudaConvTest, RefusalsSayWhy) {
  const auto library = NewLibrary();
  const auto refusal = [&](const Conv2dSpec& spec) {
    const absl::Status status = library->Prepare(spec).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    return std::string(status.message());
  };
  cudnn_.engines = {{.index = 50, .notes = {4}}};
  cudnn_.fallback_engines = {};
  EXPECT_NE(refusal(kSmall).find("engine 50"), std::string::npos) << refusal(kSmall);
  EXPECT_NE(refusal(kSmall).find("numerical note 4"), std::string::npos) << refusal(kSmall);
  cudnn_.engines = {{.index = 50, .refuses = true}};
  EXPECT_NE(refusal(kSmall).find("engine.refuses"), std::string::npos) << refusal(kSmall);
  cudnn_.engines = {};
  EXPECT_NE(refusal(kSmall).find("none of the 0 engines"), std::string::npos) << refusal(kSmall);
  cudnn_.knows_nothing = true;
  EXPECT_NE(refusal(kSmall).find("knows_nothing"), std::string::npos) << refusal(kSmall);
  EXPECT_EQ(refusal(kSmall).find("conv2d F32"), 0u) << refusal(kSmall);
}

TEST_F(CudaConvTest, LeavesToTheKernels) {
  const auto library = NewLibrary();
  for (int i = 0; i < 6; ++i) {
    Conv2dSpec spec = kSmall;
    if (i == 0) spec.dtype = DType::kF64;
    if (i == 1) spec.dtype = DType::kI32;
    if (i == 2) spec.c = 0;
    if (i == 3) spec.filters = 0;
    if (i == 4) spec.h = 0, spec.window.padding_top = spec.window.padding_bottom = 3;
    if (i == 5) spec.w = 0, spec.window.padding_left = 3;
    EXPECT_TRUE(absl::IsUnimplemented(library->Prepare(spec).status())) << ToString(spec);
  }
  Conv2dSpec invalid = kSmall;
  invalid.window.stride_h = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(library->Prepare(invalid).status()));
  for (const char* tag : {"x", "onednn:acdb", "ohw", "ohwii"}) {
    Conv2dSpec spec = kSmall;
    spec.weight_layout = tag;
    const absl::Status status = library->Prepare(spec).status();
    ASSERT_TRUE(absl::IsUnimplemented(status)) << tag;
    EXPECT_NE(status.message().find(tag), std::string::npos) << status;
  }
}

TEST_F(CudaConvTest, TagBindsAnotherShape) {
  const auto library = NewLibrary();
  for (int round = 0; round < 20; ++round) {
    Conv2dSpec spec = RandomSpec(DType::kF32);
    spec.weight_layout = "ohwi";
    ExpectAsReference<float>(*library, spec);
  }
}

TEST_F(CudaConvTest, PacksChannelsInnermost) {
  Conv2dSpec spec = kSmall;
  spec.c = 2, spec.filters = 2, spec.groups = 1;
  spec.window.kernel_h = 1, spec.window.kernel_w = 3;
  const auto conv = Get(NewLibrary()->Prepare(spec));
  const std::vector<float> canonical = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<float> opaque(12), unpacked(12);
  Check(conv->Pack(canonical.data(), opaque.data()));
  EXPECT_EQ(opaque, (std::vector<float>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
  Check(conv->Unpack(opaque.data(), unpacked.data()));
  EXPECT_EQ(unpacked, canonical);
}

TEST_F(CudaConvTest, EmptyBatchGivesZeroGradients) {
  const auto library = NewLibrary();
  Conv2dSpec spec = kSmall;
  spec.n = 0;
  const auto out = RunConv(rig_, *library, spec, RandomConvInputs<float>(random_, spec));
  EXPECT_EQ(out.dweights, std::vector<float>(static_cast<size_t>(spec.weights()), 0.0f));
  EXPECT_EQ(out.dbias, std::vector<float>(8, 0.0f));
  EXPECT_EQ(out.layout.tag, "ohwi");
  EXPECT_TRUE(cudnn_.runs.empty());
}

TEST_F(CudaConvTest, InferencePreparesForwardAlone) {
  const auto library = NewLibrary();
  Conv2dSpec spec = kSmall;
  spec.train = false;
  EXPECT_EQ(EngineOf(*library, spec), 6);
  EXPECT_NE(library->choices().find("forward"), std::string::npos);
  EXPECT_EQ(library->choices().find("backward"), std::string::npos);
}

TEST_F(CudaConvTest, ChoicesNameThePasses) {
  const auto library = NewLibrary();
  Conv2dSpec spec = kSmall;
  spec.dtype = DType::kBF16;
  Get(library->Prepare(spec));
  for (const char* part : {"conv2d BF16 [", ", forward: cudnn 91900, engine 2, knobs 2=102\n",
                           ", backward data: ", ", backward weights: "}) {
    EXPECT_NE(library->choices().find(part), std::string::npos) << part << library->choices();
  }
}

TEST_F(CudaConvTest, MisalignedOperandsAreNamed) {
  const auto conv = Get(NewLibrary()->Prepare(kSmall));
  const Rig::Bytes memory(rig_, 1 << 16);
  std::byte* const good = static_cast<std::byte*>(memory.data());
  std::byte* const bad = good + 8;
  Stream& stream = rig_.stream();
  ExpectNamed("x", conv->Forward(stream, bad, good, good, good, good));
  ExpectNamed("weights", conv->Forward(stream, good, bad, good, good, good));
  ExpectNamed("bias", conv->Forward(stream, good, good, bad, good, good));
  ExpectNamed("y", conv->Forward(stream, good, good, good, bad, good));
  ExpectNamed("scratch", conv->Forward(stream, good, good, good, good, bad));
  ExpectNamed("x", conv->BackwardData(stream, good, good, bad, good));
  ExpectNamed("weights", conv->BackwardWeights(stream, good, good, bad, good, good));
  EXPECT_TRUE(cudnn_.runs.empty());
}

TEST_F(CudaConvTest, SixteenBytesAreAlignmentEnough) {
  const auto conv = Get(NewLibrary()->Prepare(kSmall));
  const Rig::Bytes memory(rig_, 1 << 16), scratch(rig_, conv->scratch_bytes() + 16);
  std::byte* const at = static_cast<std::byte*>(memory.data()) + 16;
  void* const scratch_at = static_cast<std::byte*>(scratch.data()) + 16;
  Stream& stream = rig_.stream();
  Check(conv->Forward(stream, at, at, at, at, scratch_at));
  Check(conv->BackwardData(stream, at, at, at, scratch_at));
  Check(conv->BackwardWeights(stream, at, at, at, at, scratch_at));
}

TEST_F(CudaConvTest, EveryFailureIsReported) {
  const auto library = NewLibrary();
  auto failures = FailEachCall(*library, kSmall, "conv2d F32");
  EXPECT_GT(failures["cudnnBackendCreateDescriptor"], 10);
  EXPECT_GT(failures["cudnnBackendSetAttribute"], 60);
  EXPECT_GT(failures["cudnnBackendFinalize"], 10);
  EXPECT_GT(failures["cudnnBackendGetAttribute"], 10);

  const auto conv = Get(library->Prepare(kSmall));
  const int prepared = cudnn_.Alive();
  const Rig::Bytes memory(rig_, 1 << 16), scratch(rig_, conv->scratch_bytes());
  void* const data = memory.data();
  for (int nth = 1; nth <= 7; ++nth) {
    cudnn_.fail_call = nth;
    const absl::Status status =
        conv->Forward(rig_.stream(), data, data, data, data, scratch.data());
    EXPECT_TRUE(absl::IsInternal(status)) << nth << status;
    EXPECT_NE(status.message().find(cudnn_.failed_call), std::string::npos) << status;
    EXPECT_EQ(cudnn_.Alive(), prepared);
  }
}

// On the CUDA device: work goes to the stream that is named, and nothing waits or allocates.
TEST_F(CudaConvTest, EnqueuesAndDoesNotWait) {
  fake_cudart::Boot();
  cudnn_.host_view = fake_cudart::HostView;
  cudnn_.enqueue = fake_cudart::Enqueue;
  const auto library = NewLibrary();
  Rig rig(Get(NewCudaDevice({})));
  const auto conv = Get(library->Prepare(kSmall));
  const Rig::Bytes memory(rig, 1 << 16), scratch(rig, conv->scratch_bytes());
  void* const data = memory.data();
  const auto other = Get(rig.device().NewStream());
  fake_cudart::ForgetCalls();
  Check(conv->Forward(rig.stream(), data, data, data, data, scratch.data()));
  Check(conv->BackwardData(*other, data, data, data, scratch.data()));
  Check(conv->BackwardWeights(rig.stream(), data, data, data, data, scratch.data()));
  EXPECT_EQ(fake_cudart::WaitingCalls(), "");
  EXPECT_EQ(cudnn_.streams, (std::vector<const void*>{rig.stream().native(), other->native(),
                                                      rig.stream().native()}));
  const auto launches = fake_cudart::Launches();
  ASSERT_GE(launches.size(), 4u);  // three plans, and dbias
  EXPECT_EQ(launches[0].kernel, "cudnnBackendExecute");
  EXPECT_EQ(launches[1].stream, other->native());
}

class RealCudnnTest : public CudaConvTest {
 protected:
  void SetUp() override {
    const auto cudnn = LoadDescribedCudnn();
    if (!cudnn.ok()) GTEST_SKIP() << cudnn.status();
    real_ = *cudnn;
  }
  std::unique_ptr<PrimitiveLibrary> NewRealLibrary(const CudaLibraryOptions& options = {}) {
    return Get(NewCudaLibrary(cublaslt_.table(), *real_, options));
  }
  const Cudnn* real_ = nullptr;
};

// Convolutions of LeNet, AlexNet and VGG, and a depthwise one, get engines for every pass.
TEST_F(RealCudnnTest, HasEnginesForNets) {
  for (const bool tf32 : {false, true}) {
    const auto library = NewRealLibrary({.tf32 = tf32});
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      // n, extent, channels, filters, kernel, stride, padding, groups
      for (const auto& [n, extent, c, filters, kernel, stride, padding, groups] :
           std::vector<std::array<int64_t, 8>>{{64, 28, 1, 20, 5, 1, 0, 1},
                                               {64, 12, 20, 50, 5, 1, 0, 1},
                                               {128, 227, 3, 96, 11, 4, 0, 1},
                                               {128, 27, 96, 256, 5, 1, 2, 2},
                                               {32, 224, 64, 64, 3, 1, 1, 1},
                                               {32, 14, 512, 512, 3, 1, 1, 1},
                                               {8, 56, 32, 32, 3, 1, 1, 32}}) {
        Conv2dSpec spec{.dtype = dtype, .n = n, .h = extent, .w = extent, .c = c};
        spec.filters = filters, spec.groups = groups;
        spec.window = Square(kernel, stride, padding);
        spec.bias = true;
        const auto conv = library->Prepare(spec);
        EXPECT_TRUE(conv.ok()) << conv.status();
      }
    }
    EXPECT_EQ(library->choices().find("apart"), std::string::npos) << library->choices();
  }
}

// Whatever is asked for is described to cuDNN as it wants it: it may decline, but not complain.
TEST_F(RealCudnnTest, TakesTheDescriptions) {
  const auto library = NewRealLibrary();
  int taken = 0, declined = 0;
  for (int round = 0; round < 12; ++round) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Conv2dSpec spec = RandomSpec(dtype);
      const auto conv = library->Prepare(spec);
      ++(conv.ok() ? taken : declined);
      ASSERT_TRUE(conv.ok() || absl::IsUnimplemented(conv.status())) << conv.status();
    }
  }
  EXPECT_GT(taken, 10 * declined);
}

}  // namespace
}  // namespace gyre
