// Batch norm by cuDNN, on a fake that computes from what it is told, and on cuDNN itself as far as
// it goes without a GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/fakes/described_gpu.h"
#include "tests/cuda/primitives_fixture.h"
#include "tests/layers/layer_harness.h"

namespace gyre {
namespace {

constexpr BatchNormSpec kSmall{.rows = 12, .channels = 8, .epsilon = 1e-3, .momentum = 0.25};

class CudaBatchNormTest : public CudaPrimitivesTest {
 protected:
  static void ExpectNear(const std::vector<Doubles>& got, const std::vector<Doubles>& expected,
                         double tolerance, const char* what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t n = 0; n < got.size(); ++n) {
      ASSERT_EQ(got[n].size(), expected[n].size()) << what << " " << n;
      for (size_t i = 0; i < got[n].size(); ++i) {
        const double at = expected[n][i];
        ASSERT_NEAR(got[n][i], at, tolerance * (1 + std::abs(at))) << what << " " << n << " " << i;
      }
    }
  }

  std::string Refusal(const PrimitiveLibrary& library, const BatchNormSpec& spec) {
    const absl::Status status = library.Prepare(spec).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    return std::string(status.message());
  }
};

TEST_F(CudaBatchNormTest, LeavesToTheKernels) {
  const auto library = NewLibrary();
  for (int i = 0; i < 4; ++i) {
    BatchNormSpec spec = kSmall;
    if (i == 0) spec.dtype = DType::kF64;
    if (i == 1) spec.dtype = DType::kI32;
    if (i == 2) spec.rows = 1;
    if (i == 3) spec.channels = 0;
    Refusal(*library, spec);
  }
  EXPECT_TRUE(cudnn_.runs.empty());
  for (int i = 0; i < 2; ++i) {
    BatchNormSpec spec = kSmall;
    if (i == 0) spec.rows = -1;
    if (i == 1) spec.epsilon = 0;
    EXPECT_TRUE(absl::IsInvalidArgument(library->Prepare(spec).status())) << i;
  }
  // Nothing is recorded of a pass where the other is refused.
  for (auto* engines : {&cudnn_.engines, &cudnn_.fallback_engines}) {
    for (auto& engine : *engines) engine.notes = {4};
  }
  EXPECT_THAT(Refusal(*library, kSmall),
              testing::HasSubstr("batch_norm F32 [12, 8]: none of the 7 engines"));
  EXPECT_EQ(library->choices(), "");
}

TEST_F(CudaBatchNormTest, EqualSpecsShare) {
  const auto library = NewLibrary();
  BatchNormSpec other = kSmall;
  other.momentum = 0.5;
  const auto first = Get(library->Prepare(kSmall));
  EXPECT_EQ(Get(library->Prepare(kSmall)), first);
  EXPECT_NE(Get(library->Prepare(other)), first);
}

TEST_F(CudaBatchNormTest, ChoicesNameBothPasses) {
  const auto library = NewLibrary();
  BatchNormSpec half = kSmall;
  half.dtype = DType::kF16;
  Get(library->Prepare(half));
  EXPECT_EQ(library->choices(),
            "batch_norm F16 [12, 8], backward: cudnn 91900, engine 2, knobs 2=102\n"
            "batch_norm F16 [12, 8], forward: cudnn 91900, engine 2, knobs 2=102\n");
}

TEST_F(CudaBatchNormTest, MisalignedOperandsAreNamed) {
  const auto norm = Get(NewLibrary()->Prepare(kSmall));
  const Rig::Bytes memory(rig_, 1 << 16);
  std::byte* const good = static_cast<std::byte*>(memory.data());
  const char* const forward[] = {
      "x", "scale", "bias", "y", "mean", "inverse", "running_mean", "running_variance", "scratch"};
  const char* const backward[] = {"x",  "dy",     "scale", "mean",   "inverse",
                                  "dx", "dscale", "dbias", "scratch"};
  for (size_t bad = 0; bad < std::size(forward); ++bad) {
    const auto at = [&](size_t i) { return i == bad ? good + 8 : good; };
    ExpectNamed(forward[bad], norm->Forward(rig_.stream(), at(0), at(1), at(2), at(3), at(4), at(5),
                                            at(6), at(7), at(8)));
  }
  for (size_t bad = 0; bad < std::size(backward); ++bad) {
    const auto at = [&](size_t i) { return i == bad ? good + 8 : good; };
    ExpectNamed(backward[bad], norm->Backward(rig_.stream(), at(0), at(1), at(2), at(3), at(4),
                                              at(5), at(6), at(7), at(8)));
  }
  EXPECT_TRUE(cudnn_.runs.empty());
}

// The layer by cuDNN gives what its own kernels do, which serve what is not cuDNN's.
TEST_F(CudaBatchNormTest, TheLayerAsByItsOwnKernels) {
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
  libraries.push_back(NewLibrary());
  const Primitives primitives(DeviceKind::kCpu, std::move(libraries));
  const struct {
    const char* config;
    RunOptions options;
    size_t runs;  // of cuDNN, but for F64
  } cases[] = {
      {"batch_norm {}", {}, 2},
      {"batch_norm { epsilon: 0.1 momentum: 0.25 }", {}, 2},
      {"batch_norm {}", {.recompute = true}, 4},
      {"batch_norm { scale { learning_rate_multiplier: 0 } }", {}, 2},
      {"batch_norm { bias { learning_rate_multiplier: 0 } }", {}, 2},
      {"batch_norm { synchronised: true }", {}, 0},
      {"batch_norm {}", {.train = false}, 0},
      {"batch_norm {}", {.input_gradients = false}, 0},
      {"batch_norm {}", {.output_activation = Activation::kRelu}, 0},
  };
  for (const auto& c : cases) {
    for (const DType dtype : kRealTypes) {
      for (const Shape& x : {Shape{4, 3, 2, 8}, Shape{5, 3}}) {
        SCOPED_TRACE(std::string(c.config) + " " + std::string(DTypeName(dtype)) + x.ToString());
        const LayerCase layer{c.config, {Distinct(x, 1)}};
        RunOptions options = c.options;
        options.device = DeviceKind::kCpu;
        options.compute = dtype;
        const RunResult own = Ran(layer, options);
        cudnn_.runs.clear();
        options.primitives = &primitives;
        const RunResult got = Ran(layer, options);
        EXPECT_EQ(cudnn_.runs.size(), dtype == DType::kF64 ? 0 : c.runs);
        // A rounding to the type of numbers of a few units.
        const double tolerance = dtype == DType::kF16    ? 0x1p-9
                                 : dtype == DType::kBF16 ? 0x1p-6
                                                         : 1e-5;
        ExpectNear({got.output}, {own.output}, tolerance, "output");
        ExpectNear(got.buffers, own.buffers, 1e-6, "buffer");
        ExpectNear(got.parameter_gradients, own.parameter_gradients, tolerance, "parameter");
        ExpectNear(got.input_gradients, own.input_gradients, tolerance, "input");
      }
    }
  }
}

TEST_F(CudaBatchNormTest, EveryFailureIsReported) {
  auto failures = FailEachCall(*NewLibrary(), kSmall, "batch_norm F32");
  EXPECT_GT(failures["cudnnBackendSetAttribute"], 60);
  EXPECT_GT(failures["cudnnBackendFinalize"], 10);
}

// cuDNN compiles kernels for batch norm as a plan is made, and wants a driver to load them.
class RealCudnnBatchNormTest : public CudaBatchNormTest {
 protected:
  void SetUp() override {
    ASSERT_NE(dlopen("tests/cuda/fakes/libcuda_stub.so", RTLD_NOW), nullptr) << dlerror();
    const auto cudnn = LoadDescribedCudnn();
    if (!cudnn.ok()) GTEST_SKIP() << cudnn.status();
    real_ = *cudnn;
  }
  const Cudnn* real_ = nullptr;
};

// Batch norms of ResNet-50, the first and the last ones, for 32 samples.
TEST_F(RealCudnnBatchNormTest, HasEnginesForResNet50) {
  const auto library = Get(NewCudaLibrary(cublaslt_.table(), *real_, {}));
  for (const auto& [dtype, rows, channels] : {std::tuple(DType::kF32, 32 * 112 * 112, 64),
                                              {DType::kF32, 32 * 7 * 7, 2048},
                                              {DType::kF16, 32 * 56 * 56, 256}}) {
    const auto norm = library->Prepare(BatchNormSpec{
        .dtype = dtype, .rows = rows, .channels = channels, .epsilon = 1e-5, .momentum = 0.1});
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_GT((*norm)->scratch_bytes(), 0u);
  }
}

// It may decline, but not complain.
TEST_F(RealCudnnBatchNormTest, TakesTheDescriptions) {
  const auto library = Get(NewCudaLibrary(cublaslt_.table(), *real_, {}));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t channels : {3, 33}) {
      BatchNormSpec spec = kSmall;
      spec.dtype = dtype;
      spec.channels = channels;
      Refusal(*library, spec);
    }
  }
}

}  // namespace
}  // namespace gyre
