// GEMM by cuBLASLt, on a fake that computes from what it is told.
#include <gtest/gtest.h>

#include "engine/runtime/device/cuda/cuda_device.h"
#include "tests/cuda/fakes/described_gpu.h"
#include "tests/cuda/fakes/fake_cudart.h"
#include "tests/cuda/primitives_fixture.h"
#include "tests/primitives/oracle.h"

namespace gyre {
namespace {

// Of a result that was computed in double: two roundings to T, where bias and activation are added
// to what was stored.
template <typename T>
constexpr double kTolerance = 0;
template <>
constexpr double kTolerance<double> = 1e-14;
template <>
constexpr double kTolerance<float> = 0x1p-23;
template <>
constexpr double kTolerance<Half> = 0x1p-10;
template <>
constexpr double kTolerance<BFloat16> = 0x1p-7;

class CudaGemmTest : public CudaPrimitivesTest {
 protected:
  GemmSpec RandomSpec(DType dtype) {
    GemmSpec spec = RandomGemmSpec(random_, dtype);
    if (Pick(random_, {0, 1}) != 0) spec.activation = Activation::kRelu;
    return spec;
  }

  template <typename T>
  void ExpectAsReference(const PrimitiveLibrary& library, const GemmSpec& spec) {
    Oracle(rig_, library).CheckGemm<T>(random_, spec, kTolerance<T>);
  }

  void ExpectAllTypesAsReference(const PrimitiveLibrary& library) {
    for (int round = 0; round < 12 && !HasFatalFailure(); ++round) {
      ExpectAsReference<double>(library, RandomSpec(DType::kF64));
      ExpectAsReference<float>(library, RandomSpec(DType::kF32));
      ExpectAsReference<Half>(library, RandomSpec(DType::kF16));
      ExpectAsReference<BFloat16>(library, RandomSpec(DType::kBF16));
    }
  }

  Random random_{20241121};
};

TEST_F(CudaGemmTest, RandomProductsAsReference) { ExpectAllTypesAsReference(*NewLibrary()); }

TEST_F(CudaGemmTest, PartsAsReference) {
  const auto library = NewLibrary();
  int taken = 0;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    VisitReal(dtype, [&]<typename T>() {
      for (int round = 0; round < 40 && !HasFatalFailure(); ++round) {
        GemmSpec spec = RandomPartsSpec(random_, dtype);
        spec.bias = false;
        if (absl::IsUnimplemented(library->Prepare(spec).status())) continue;
        ++taken;
        ExpectAsReference<T>(*library, spec);
      }
    });
  }
  EXPECT_GT(taken, 80) << "of 160";

  GemmSpec spec{.m = 2, .n = 4, .k = 4};
  spec.inner = {.count = 2, .c = 8};
  spec.outer = {.count = 3, .b = 16, .c = 16};
  Check(library->Prepare(spec).status());
  GemmSpec other = spec;
  other.bias = true;
  EXPECT_TRUE(absl::IsUnimplemented(library->Prepare(other).status()));
  other = spec;
  other.outer.b = 18;  // the second begins at half of 16 bytes
  EXPECT_TRUE(absl::IsUnimplemented(library->Prepare(other).status()));
  cublaslt_.fail_call_named = "cublasLtMatrixLayoutSetAttribute";
  const absl::Status failed = library->Prepare(spec).status();
  EXPECT_TRUE(absl::IsInternal(failed)) << failed;
  EXPECT_NE(failed.message().find(cublaslt_.fail_call_named), std::string::npos) << failed;
}

TEST_F(CudaGemmTest, EpilogueApartAsReference) {
  for (auto& algorithm : cublaslt_.algorithms) algorithm.epilogues = false;
  const auto library = NewLibrary();
  ExpectAllTypesAsReference(*library);
  EXPECT_NE(library->choices().find("epilogue apart"), std::string::npos) << library->choices();
}

// Of the search's suggestions, those before 73 add partial sums in the output's type, or want more
// workspace than there may be.
TEST_F(CudaGemmTest, ChoosesWhatIsDeterministic) {
  const auto library = NewLibrary();
  ExpectAllTypesAsReference(*library);
  ASSERT_FALSE(cublaslt_.runs.empty());
  for (const int id : cublaslt_.runs) EXPECT_EQ(id, 73);

  // A search that does not heed the preference.
  cublaslt_.algorithms = {{.id = 75, .reduction = 0, .workspace_bytes = (32 << 20) + 1},
                          {.id = 76}};
  const GemmSpec spec{.m = 4, .n = 4, .k = 4};
  EXPECT_EQ(Get(library->Prepare(spec))->scratch_bytes(), 0u);
}

TEST_F(CudaGemmTest, ChoicesAreSortedAndStable) {
  std::vector<GemmSpec> specs;
  for (int i = 0; i < 10; ++i) specs.push_back(RandomSpec(DType::kF32));
  const auto forwards = NewLibrary(), backwards = NewLibrary();
  for (const GemmSpec& spec : specs) Get(forwards->Prepare(spec));
  std::reverse(specs.begin(), specs.end());
  for (const GemmSpec& spec : specs) Get(backwards->Prepare(spec));
  EXPECT_EQ(forwards->choices(), backwards->choices());
  for (const char* part : {"gemm F32 [", "cublaslt 130100", "algorithm 73", "splits 3",
                           "reduction 2", "tile 1", "stages 6"}) {
    EXPECT_NE(forwards->choices().find(part), std::string::npos) << part << forwards->choices();
  }
  EXPECT_EQ(forwards->choices().find("tf32"), std::string::npos);
  const auto tf32 = NewLibrary({.tf32 = true});
  for (const GemmSpec& spec : specs) Get(tf32->Prepare(spec));
  EXPECT_NE(tf32->choices(), forwards->choices());
}

TEST_F(CudaGemmTest, ComputeTypes) {
  constexpr int kCompute32F = 68, kCompute64F = 70, kCompute32FFastTf32 = 77;
  for (const bool tf32 : {false, true}) {
    const auto library = NewLibrary({.tf32 = tf32});
    cublaslt_.compute_types.clear();
    const GemmSpec extents{.m = 3, .n = 4, .k = 5};
    GemmSpec spec = extents;
    ExpectAsReference<float>(*library, spec);
    spec.dtype = DType::kF64;
    ExpectAsReference<double>(*library, spec);
    spec.dtype = DType::kF16;
    ExpectAsReference<Half>(*library, spec);
    spec.dtype = DType::kBF16;
    ExpectAsReference<BFloat16>(*library, spec);
    EXPECT_EQ(cublaslt_.compute_types, (std::vector<int>{tf32 ? kCompute32FFastTf32 : kCompute32F,
                                                         kCompute64F, kCompute32F, kCompute32F}));
  }
}

TEST_F(CudaGemmTest, ReluHandsNaNOn) {
  cublaslt_.algorithms = {{.id = 80, .swallows_nan = true}};
  const GemmSpec spec{.m = 1, .n = 2, .k = 1, .activation = Activation::kRelu};
  const auto c = RunGemm<float>(rig_, *NewLibrary(), spec, {NAN}, {1, 1}, {});
  EXPECT_TRUE(std::isnan(c[0]) && std::isnan(c[1]));
}

TEST_F(CudaGemmTest, LeavesToTheKernels) {
  const auto library = NewLibrary();
  for (const GemmSpec& spec :
       {GemmSpec{.m = 0, .n = 2, .k = 2}, GemmSpec{.m = 2, .n = 0, .k = 2},
        GemmSpec{.m = 2, .n = 2, .k = 0}, GemmSpec{.dtype = DType::kI32, .m = 2, .n = 2, .k = 2}}) {
    EXPECT_TRUE(absl::IsUnimplemented(library->Prepare(spec).status())) << ToString(spec);
  }
  EXPECT_TRUE(absl::IsInvalidArgument(library->Prepare(GemmSpec{.m = -1}).status()));
  EXPECT_TRUE(absl::IsUnimplemented(library->Prepare(Pool2dSpec{.h = 1, .w = 1}).status()));

  // Whatever a search fails of, the kernels may do.
  cublaslt_.fail_call_named = "cublasLtMatmulAlgoGetHeuristic";
  const auto failed = library->Prepare(GemmSpec{.m = 2, .n = 2, .k = 2, .bias = true});
  EXPECT_TRUE(absl::IsUnimplemented(failed.status())) << failed.status();
  EXPECT_NE(failed.status().message().find("was told to fail"), std::string::npos);
  cublaslt_.fail_call_named = "";

  cublaslt_.algorithms.clear();
  const auto none = library->Prepare(GemmSpec{.m = 2, .n = 2, .k = 2, .bias = true});
  ASSERT_TRUE(absl::IsUnimplemented(none.status()));
  EXPECT_NE(none.status().message().find("gemm F32 [2, 2]"), std::string::npos) << none.status();
}

TEST_F(CudaGemmTest, MisalignedOperandsAreNamed) {
  const auto library = NewLibrary();
  const auto gemm = Get(library->Prepare(GemmSpec{.m = 4, .n = 4, .k = 4, .bias = true}));
  const Rig::Bytes memory(rig_, 4096);
  std::byte* const good = static_cast<std::byte*>(memory.data());
  const char* const names[] = {"a", "b", "bias", "c", "scratch"};
  for (int wrong = 0; wrong < 5; ++wrong) {
    std::byte* operands[5];
    for (int i = 0; i < 5; ++i) operands[i] = good + 256 * i + (i == wrong ? 8 : 0);
    ExpectNamed(names[wrong], gemm->Run(rig_.stream(), operands[0], operands[1], operands[2],
                                        operands[3], operands[4]));
  }
}

TEST_F(CudaGemmTest, SixteenBytesAreAlignmentEnough) {
  const auto gemm = Get(NewLibrary()->Prepare(GemmSpec{.m = 4, .n = 4, .k = 4, .bias = true}));
  const Rig::Bytes memory(rig_, 4096), scratch(rig_, gemm->scratch_bytes() + 16);
  std::byte* const at = static_cast<std::byte*>(memory.data()) + 16;
  Check(gemm->Run(rig_.stream(), at, at + 256, at + 512, at + 1024,
                  static_cast<std::byte*>(scratch.data()) + 16));
}

// Each call in turn fails: an error that names it, and nothing left behind.
TEST_F(CudaGemmTest, EveryFailureIsReported) {
  cublaslt_.fail_call = 1;
  EXPECT_FALSE(NewCudaLibrary(cublaslt_.table(), cudnn_.table(), {}).ok());
  cudnn_.fail_call = 1;
  EXPECT_FALSE(NewCudaLibrary(cublaslt_.table(), cudnn_.table(), {}).ok());
  EXPECT_EQ(cublaslt_.Alive() + cudnn_.Alive(), 0);

  const auto library = NewLibrary();
  const GemmSpec spec{.m = 4, .n = 4, .k = 4, .bias = true};
  const int alive = cublaslt_.Alive();
  int failures = 0;
  for (int nth = 1;; ++nth) {
    cublaslt_.fail_call = nth;
    const auto gemm = library->Prepare(spec);
    if (cublaslt_.fail_call > 0) break;  // there were no more calls
    const std::string& failed = cublaslt_.failed_call;
    // What describes an algorithm may be missing.
    if (failed == "cublasLtMatmulAlgoConfigGetAttribute") continue;
    // A search that fails is followed by another one.
    if (failed == "cublasLtMatmulAlgoGetHeuristic") {
      EXPECT_TRUE(gemm.ok()) << gemm.status();
      continue;
    }
    ++failures;
    ASSERT_FALSE(gemm.ok()) << failed;
    EXPECT_TRUE(absl::IsInternal(gemm.status())) << gemm.status();
    EXPECT_NE(gemm.status().message().find(failed), std::string::npos) << gemm.status();
    EXPECT_EQ(cublaslt_.Alive(), alive);
  }
  EXPECT_GT(failures, 10);

  cublaslt_.fail_call = 0;
  const auto gemm = Get(library->Prepare(spec));
  const Rig::Bytes memory(rig_, 16 * sizeof(float)), scratch(rig_, gemm->scratch_bytes());
  void* const data = memory.data();
  for (const int nth : {1, 2, 3}) {  // the epilogue, the bias's pointer, the product
    cublaslt_.fail_call = nth;
    const absl::Status status = gemm->Run(rig_.stream(), data, data, data, data, scratch.data());
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_NE(status.message().find(cublaslt_.failed_call), std::string::npos) << status;
  }
}

TEST_F(CudaGemmTest, OutlivesItsLibrary) {
  auto library = NewLibrary();
  const auto gemm = Get(library->Prepare(GemmSpec{.m = 1, .n = 1, .k = 1}));
  library.reset();
  const Rig::Bytes a(rig_, std::vector<float>{2}), b(rig_, std::vector<float>{3});
  const Rig::Bytes c(rig_, sizeof(float)), scratch(rig_, gemm->scratch_bytes());
  Check(gemm->Run(rig_.stream(), a.data(), b.data(), nullptr, c.data(), scratch.data()));
  EXPECT_EQ(c.Read<float>(), std::vector<float>{6});
}

TEST_F(CudaGemmTest, RealLibraryTakesTheDescriptions) {
  const auto cublaslt = LoadDescribedCublasLt();
  if (!cublaslt.ok()) GTEST_SKIP() << cublaslt.status();
  const auto library = Get(NewCudaLibrary(**cublaslt, cudnn_.table(), {.tf32 = true}));
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    for (int round = 0; round < 20; ++round) {
      EXPECT_EQ(library->Prepare(RandomSpec(dtype)).status(), absl::OkStatus());
      GemmSpec parts{.dtype = dtype, .m = 128, .n = 64, .k = 32, .transpose_b = true};
      parts.lda = parts.ldb = 128;
      parts.inner = {.count = 4, .a = 32, .b = 32, .c = 128 * 64};
      parts.accumulate = round % 2 == 0;
      EXPECT_EQ(library->Prepare(parts).status(), absl::OkStatus());
    }
  }
  // Every attribute of an algorithm was read.
  EXPECT_EQ(library->choices().find(" ,"), std::string::npos) << library->choices();
}

// On the CUDA device: work goes to the stream that is named, and nothing waits or allocates.
TEST_F(CudaGemmTest, EnqueuesAndDoesNotWait) {
  fake_cudart::Boot();
  cublaslt_.host_view = fake_cudart::HostView;
  cublaslt_.enqueue = fake_cudart::Enqueue;
  const auto library = NewLibrary();
  Rig rig(Get(NewCudaDevice({})));
  const auto gemm = Get(library->Prepare(GemmSpec{.m = 1, .n = 2, .k = 1, .bias = true}));
  const Rig::Bytes a(rig, std::vector<float>{2}), b(rig, std::vector<float>{3, 4});
  const Rig::Bytes bias(rig, std::vector<float>{10, 20});
  const Rig::Bytes c(rig, 2 * sizeof(float)), scratch(rig, gemm->scratch_bytes());
  fake_cudart::ForgetCalls();
  Check(gemm->Run(rig.stream(), a.data(), b.data(), bias.data(), c.data(), scratch.data()));
  EXPECT_EQ(fake_cudart::WaitingCalls(), "");
  ASSERT_EQ(fake_cudart::Launches().size(), 1u);
  EXPECT_EQ(fake_cudart::Launches()[0].kernel, "cublasLtMatmul");
  EXPECT_EQ(fake_cudart::Launches()[0].stream, rig.stream().native());
  EXPECT_EQ(c.Read<float>(), (std::vector<float>{16, 28}));

  // A graph's product is made at each replay, of what is there.
  Check(rig.stream().BeginCapture());
  Check(gemm->Run(rig.stream(), a.data(), b.data(), bias.data(), c.data(), scratch.data()));
  const auto graph = Get(rig.stream().EndCapture());
  for (const float factor : {5.0f, 6.0f}) {
    Check(rig.stream().Copy(a.data(), &factor, sizeof(factor)));
    Check(graph->Replay(rig.stream()));
    EXPECT_EQ(c.Read<float>(), (std::vector<float>{10 + 3 * factor, 20 + 4 * factor}));
  }
}

}  // namespace
}  // namespace gyre
