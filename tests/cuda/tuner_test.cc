// The choice among the candidates of an operation: on fakes, whose time is the number of their
// launches.
#include "engine/runtime/primitives/cuda/tuner.h"

#include <gtest/gtest.h>

#include "engine/runtime/primitives/cuda/library.h"
#include "tests/cuda/cuda_device_fixture.h"
#include "tests/cuda/fakes/fake_cublaslt.h"
#include "tests/cuda/fakes/fake_cudnn.h"

namespace gyre {
namespace {

constexpr GemmSpec kGemm{.m = 4, .n = 4, .k = 4, .bias = true, .activation = Activation::kRelu};
constexpr Conv2dSpec kConv{.n = 2,
                           .h = 4,
                           .w = 4,
                           .c = 4,
                           .filters = 4,
                           .window = {.kernel_h = 3, .kernel_w = 3},
                           .bias = true,
                           .activation = Activation::kRelu,
                           .weight_layout = {}};

class TunerTest : public CudaDeviceTest {
 protected:
  TunerTest() {
    cublaslt_.host_view = cudnn_.host_view = fake_cudart::HostView;
    cublaslt_.enqueue = cudnn_.enqueue = fake_cudart::Enqueue;
    cudnn_.fallback_engines = {};
  }

  std::unique_ptr<Primitives> NewPrimitives(CudaSelector* selector) {
    auto primitives =
        NewCudaPrimitives(*device_, cublaslt_.table(), cudnn_.table(), {.selector = selector});
    EXPECT_TRUE(primitives.ok()) << primitives.status();
    return *std::move(primitives);
  }
  // What a rank that measures chooses.
  std::string Tuned() {
    CudaTuner tuner(*device_, 0, nullptr);
    const auto primitives = NewPrimitives(&tuner);
    EXPECT_TRUE(Tune(tuner, *primitives).ok());
    return primitives->choices();
  }
  static absl::Status Tune(CudaTuner& tuner, const Primitives& primitives) {
    return tuner.Tune([&]() -> absl::Status {
      RETURN_IF_ERROR(primitives.Prepare(kGemm).status());
      return primitives.Prepare(kConv).status();
    });
  }
  static bool Has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  }

  FakeCublasLt cublaslt_;
  FakeCudnn cudnn_;
};

TEST_F(TunerTest, TakesTheFastest) {
  cublaslt_.algorithms = {
      {.id = 80, .launches = 4}, {.id = 81, .launches = 2}, {.id = 82, .launches = 3}};
  cudnn_.engines = {{.index = 50, .launches = 5}, {.index = 51, .launches = 2}};
  const std::string choices = Tuned();
  EXPECT_TRUE(Has(choices, "algorithm 81")) << choices;
  for (const char* pass :
       {", forward: cudnn 91900, engine 51", ", backward data: cudnn 91900, engine 51",
        ", backward weights: cudnn 91900, engine 51"}) {
    EXPECT_TRUE(Has(choices, pass)) << pass << choices;
  }
  // Heuristics' favourites without it, and where nothing is faster.
  EXPECT_TRUE(Has(Tuned(), "algorithm 81"));
  const auto plain = NewPrimitives(nullptr);
  EXPECT_TRUE(plain->Prepare(kGemm).ok());
  EXPECT_TRUE(Has(plain->choices(), "algorithm 80")) << plain->choices();
  cublaslt_.algorithms = {{.id = 80}, {.id = 81}};
  EXPECT_TRUE(Has(Tuned(), "algorithm 80"));
}

// An epilogue of many launches is slower than a product and a kernel of ours.
TEST_F(TunerTest, TakesThePartsWhereTheyAreFaster) {
  cublaslt_.algorithms = {{.id = 80, .launches = 3}, {.id = 81, .epilogues = false}};
  cudnn_.engines = {{.index = 50, .launches = 3}, {.index = 51, .fuses = false}};
  const std::string choices = Tuned();
  EXPECT_TRUE(Has(choices, "epilogue apart, epilogue 1, algorithm 81")) << choices;
  EXPECT_TRUE(Has(choices, "bias and activation apart, engine 51")) << choices;
}

// The fastest would be 80 and 50 with their ReLU; without it they pass.
TEST_F(TunerTest, AReluThatSwallowsNaNIsOut) {
  cublaslt_.algorithms = {{.id = 80, .swallows_nan = true}, {.id = 81, .launches = 9}};
  cudnn_.engines = {{.index = 50, .swallows_nan = true}, {.index = 51, .launches = 9}};
  const std::string choices = Tuned();
  EXPECT_TRUE(Has(choices, "epilogue apart, epilogue 1, algorithm 80")) << choices;
  EXPECT_TRUE(Has(choices, "bias and activation apart, engine 50")) << choices;
}

// Whatever the number of the one that was chosen.
TEST_F(TunerTest, AfterItsPassTheSameOneIsFound) {
  for (int fastest = 0; fastest < 5; ++fastest) {
    cublaslt_.algorithms.clear();
    cudnn_.engines.clear();
    for (int i = 0; i < 5; ++i) {
      const int launches = i == fastest ? 1 : 9;
      cublaslt_.algorithms.push_back({.id = 80 + i, .launches = launches});
      cudnn_.engines.push_back({.index = 50 + i, .launches = launches});
    }
    for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
      GemmSpec gemm = kGemm;
      Conv2dSpec conv = kConv;
      gemm.activation = conv.activation = activation;
      CudaTuner tuner(*device_, 0, nullptr);
      const auto prepare = [&](const Primitives& primitives) -> absl::Status {
        RETURN_IF_ERROR(primitives.Prepare(gemm).status());
        return primitives.Prepare(conv).status();
      };
      const auto tuned = NewPrimitives(&tuner), after = NewPrimitives(&tuner);
      ASSERT_TRUE(tuner.Tune([&] { return prepare(*tuned); }).ok());
      ASSERT_TRUE(prepare(*after).ok());
      EXPECT_EQ(after->choices(), tuned->choices());
    }
  }
}

TEST_F(TunerTest, OtherRanksTakeWhatTheFirstTook) {
  cudnn_.engines = {{.index = 50, .launches = 5}, {.index = 51, .launches = 2}};
  cublaslt_.algorithms = {{.id = 80, .launches = 4}, {.id = 81, .launches = 2}};
  std::vector<std::pair<std::string, double>> sent;
  CudaTuner first(*device_, 0, [&](const std::string& what, double* value) {
    sent.emplace_back(what, *value);
    return absl::OkStatus();
  });
  size_t received = 0;
  CudaTuner second(*device_, 1, [&](const std::string& what, double* value) {
    EXPECT_EQ(what, sent.at(received).first);
    *value = sent[received++].second;
    return absl::OkStatus();
  });
  const auto primitives = NewPrimitives(&first), others = NewPrimitives(&second);
  ASSERT_TRUE(Tune(first, *primitives).ok());
  fake_cudart::ForgetCalls();
  ASSERT_TRUE(Tune(second, *others).ok());
  EXPECT_EQ(fake_cudart::Calls("library call"), 0);
  EXPECT_EQ(received, 4u);
  EXPECT_EQ(others->choices(), primitives->choices());
}

// Ranks plan on their own, and what they prepare then is nobody else's concern.
TEST_F(TunerTest, NothingIsMeasuredOrSharedButInItsPass) {
  cublaslt_.algorithms = {{.id = 80, .launches = 4}, {.id = 81, .launches = 2}};
  int shared = 0;
  CudaTuner tuner(*device_, 0, [&](const std::string&, double*) {
    ++shared;
    return absl::OkStatus();
  });
  const auto before = NewPrimitives(&tuner), after = NewPrimitives(&tuner);
  ASSERT_TRUE(before->Prepare(kGemm).ok());
  EXPECT_EQ(shared, 0);
  EXPECT_TRUE(Has(before->choices(), "algorithm 80")) << before->choices();
  ASSERT_TRUE(tuner.Tune([&] { return NewPrimitives(&tuner)->Prepare(kGemm).status(); }).ok());
  EXPECT_EQ(shared, 1);
  fake_cudart::ForgetCalls();
  ASSERT_TRUE(after->Prepare(kGemm).ok());
  EXPECT_EQ(shared, 1);
  EXPECT_EQ(fake_cudart::Calls("library call"), 0);
  EXPECT_TRUE(Has(after->choices(), "algorithm 81")) << after->choices();
}

// Too little memory, and candidates that fail: the favourite.
TEST_F(TunerTest, WhatCannotBeMeasuredIsTheFavourite) {
  cublaslt_.algorithms = {{.id = 80, .launches = 4}, {.id = 81, .launches = 2}};
  for (const char* call : {"cudaMalloc", "cudaEventCreateWithFlags", "cudaEventElapsedTime"}) {
    fake_cudart::FailCall(call, kOutOfMemory);
    EXPECT_TRUE(Has(Tuned(), "algorithm 80")) << call;
  }
}

// Handles are made on the device's GPU, whichever one is current.
TEST_F(TunerTest, LibrariesAreMadeOnTheDevicesGpu) {
  Reboot({.gpus = std::vector<fake_cudart::Gpu>(2)});
  Open({.local_rank = 1, .local_ranks = 2});
  const auto other = std::move(NewCudaDevice({})).value();  // GPU 0 is the thread's now
  int gpu_of_handle = -1;
  cudnn_.on_create = [&] { gpu_of_handle = fake_cudart::CurrentGpu(); };
  (void)NewPrimitives(nullptr);
  EXPECT_EQ(gpu_of_handle, 1);
}

}  // namespace
}  // namespace gyre
