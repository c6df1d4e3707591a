// Which GPU the cuda device opens, what it may plan with, and what it says when it cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cuda/cuda_device_fixture.h"

namespace gyre {
namespace {

using testing::StartsWith;

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device_->kind(), DeviceKind::kCuda);
  EXPECT_EQ(stream_->kind(), DeviceKind::kCuda);
  EXPECT_NE(stream_->native(), nullptr);
  EXPECT_NE(stream_->native(), other_->native());
  EXPECT_THAT(device_->description(),
              StartsWith("GPU 0 of 1, Fake GPU, compute capability 9.0, driver for CUDA 13.0, "
                         "runtime "));
}

TEST(CudaOpenTest, SaysWhichGpusItReaches) {
  fake_cudart::Boot({.gpus = std::vector<fake_cudart::Gpu>(5)});
  for (const auto& [rank, expected] :
       {std::pair(0, "9.0, peers 1, "), std::pair(3, "9.0, peers 2, "),
        std::pair(4, "9.0, driver")}) {
    const auto device = std::move(NewCudaDevice({.local_rank = rank, .local_ranks = 5})).value();
    EXPECT_THAT(device->description(), testing::HasSubstr(expected));
  }
  fake_cudart::FailCall("cudaDeviceCanAccessPeer", kInvalidValue);
  EXPECT_EQ(Message(NewCudaDevice({}).status()),
            "cudaDeviceCanAccessPeer: invalid argument (cudaErrorInvalidValue)");
}

absl::Status OpenOn(const fake_cudart::Machine& machine) {
  fake_cudart::Boot(machine);
  const absl::Status status = NewCudaDevice({}).status();
  EXPECT_EQ(fake_cudart::LastError(), kSuccess);
  return status;
}

TEST(CudaOpenTest, WhatAMachineLacksIsNamed) {
  const std::pair<fake_cudart::Machine, const char*> kCases[] = {
      {{.driver_version = 0, .gpus = {}},
       "cuda: no NVIDIA driver found (libcuda.so.1); this build needs one for CUDA "},
      {{.driver_version = 11080, .gpus = {{}}},
       "cuda: the NVIDIA driver is for CUDA 11.8, but this build needs one for "},
      {{.gpus = {}}, "cuda: the driver sees no GPU; look at nvidia-smi and CUDA_VISIBLE_DEVICES"},
      {{.gpus = {{.name = "Tesla V100-SXM2-16GB", .compute_capability = 70}}},
       "cuda: GPU 0 of 1, Tesla V100-SXM2-16GB, compute capability 7.0, is too old: this build has "
       "kernels for 8.0 and newer"},
  };
  for (const auto& [machine, message] : kCases) {
    const absl::Status status = OpenOn(machine);
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(Message(status), StartsWith(message));
  }
  for (const int capability : {80, 86, 89, 90, 120}) {
    EXPECT_TRUE(OpenOn({.gpus = {{.compute_capability = capability}}}).ok()) << capability;
  }
}

TEST(CudaOpenTest, EachCallThatFailsIsNamed) {
  const struct {
    const char* function;
    int error;
    const char* message;
  } kCases[] = {
      {"cudaDriverGetVersion", kInvalidValue,
       "cudaDriverGetVersion: invalid argument (cudaErrorInvalidValue)"},
      {"cudaRuntimeGetVersion", kInvalidValue,
       "cudaRuntimeGetVersion: invalid argument (cudaErrorInvalidValue)"},
      {"cudaGetDeviceCount", kInitializationError,
       "cuda: the driver does not answer: cudaGetDeviceCount: initialization error "
       "(cudaErrorInitializationError)"},
      {"cudaGetDeviceProperties", kInvalidValue,
       "cudaGetDeviceProperties: invalid argument (cudaErrorInvalidValue)"},
      {"cudaSetDevice", kDevicesUnavailable,
       "cuda: GPU 0 of 1, Fake GPU, compute capability 9.0, cannot be opened: cudaSetDevice: "
       "CUDA-capable device(s) is/are busy or unavailable (cudaErrorDevicesUnavailable)"},
      {"cudaFuncGetAttributes", kNoKernelImage,
       "cuda: GPU 0 of 1, Fake GPU, compute capability 9.0, with a driver for CUDA 13.0, cannot "
       "load this build's kernels: cudaFuncGetAttributes: no kernel image is available for "
       "execution on the device (cudaErrorNoKernelImageForDevice)"},
      {"cudaMemGetInfo", kInvalidValue, "cudaMemGetInfo: invalid argument (cudaErrorInvalidValue)"},
  };
  for (const auto& c : kCases) {
    fake_cudart::Boot();
    fake_cudart::FailCall(c.function, c.error);
    EXPECT_EQ(Message(NewCudaDevice({}).status()), c.message);
    EXPECT_EQ(fake_cudart::LastError(), kSuccess);
  }
}

// The GPU that rank `local_rank` of `local_ranks` takes, and what it may plan with.
std::pair<std::string, size_t> Share(int local_rank, int local_ranks) {
  const auto device =
      std::move(NewCudaDevice({.local_rank = local_rank, .local_ranks = local_ranks})).value();
  return {device->description().substr(0, 10), device->capacity_bytes()};
}

TEST(CudaOpenTest, RanksTakeGpusInTurnAndShareTheirMemory) {
  fake_cudart::Boot({.gpus = {{.memory_bytes = 20 * kGiB}, {.memory_bytes = 30 * kGiB}}});
  const auto expect = [](int rank, int ranks, const std::string& gpu, size_t bytes) {
    EXPECT_EQ(Share(rank, ranks), std::pair(gpu, bytes)) << rank << " of " << ranks;
  };
  const size_t reserve = kGiB / 2;
  expect(0, 1, "GPU 0 of 2", 20 * kGiB - reserve);
  expect(1, 2, "GPU 1 of 2", 30 * kGiB - reserve);
  // Two on the first GPU, one on the second.  Who shares also pays for the others' contexts.
  expect(0, 3, "GPU 0 of 2", 10 * kGiB - 2 * reserve);
  expect(1, 3, "GPU 1 of 2", 30 * kGiB - reserve);
  expect(2, 3, "GPU 0 of 2", 10 * kGiB - 2 * reserve);
  for (int rank = 0; rank < 7; ++rank) {
    expect(rank, 7, rank % 2 == 0 ? "GPU 0 of 2" : "GPU 1 of 2",
           (rank % 2 == 0 ? 5 * kGiB : 10 * kGiB) - 2 * reserve);
  }
}

TEST(CudaOpenTest, CapacityIsWhatIsFreeOrWhatWasAskedFor) {
  fake_cudart::Boot({.gpus = {{.memory_bytes = 4 * kGiB}}});
  const auto first = std::move(NewCudaDevice({.capacity_bytes = 12345})).value();
  EXPECT_EQ(first->capacity_bytes(), 12345u);
  const auto whole = std::move(NewCudaDevice({})).value();
  const Buffer used = *Buffer::Allocate(*whole, MemoryKind::kDevice, kGiB);
  EXPECT_LT(std::move(NewCudaDevice({})).value()->capacity_bytes(), 3 * kGiB - kGiB / 2);
}

TEST(CudaOpenTest, ASmallGpuHasNoCapacityRatherThanAHugeOne) {
  fake_cudart::Boot({.gpus = {{.memory_bytes = kGiB / 4}}});
  EXPECT_EQ(std::move(NewCudaDevice({})).value()->capacity_bytes(), 0u);
}

}  // namespace
}  // namespace gyre
