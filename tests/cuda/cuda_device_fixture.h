// cuda_device_fixture.h: a cuda device on the fake runtime, with two streams and an event.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "engine/runtime/device/buffer.h"
#include "engine/runtime/device/cuda/cuda_device.h"
#include "tests/cuda/fakes/fake_cudart.h"

namespace gyre {

// cudaError_t.
inline constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInitializationError = 3,
                     kDevicesUnavailable = 46, kNoKernelImage = 209, kIllegalAddress = 700;

inline constexpr size_t kGiB = size_t{1} << 30;

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_cudart::Boot();
    Open();
  }
  void TearDown() override {
    event_.reset();
    other_.reset();
    stream_.reset();
    device_.reset();
    EXPECT_EQ(fake_cudart::Alive(), 0);
  }

  void Open(const CudaOptions& options = {}) {
    device_ = std::move(NewCudaDevice(options)).value();
    stream_ = NewStream();
    other_ = NewStream();
    event_ = std::move(device_->NewEvent()).value();
  }
  // A machine with another one's GPUs; nothing of the machine before may be alive.
  void Reboot(const fake_cudart::Machine& machine) {
    TearDown();
    fake_cudart::Boot(machine);
  }

  std::unique_ptr<Stream> NewStream() { return std::move(device_->NewStream()).value(); }
  Buffer Make(size_t bytes, MemoryKind kind = MemoryKind::kPinnedHost) {
    return std::move(Buffer::Allocate(*device_, kind, bytes)).value();
  }
  Buffer MakeOnDevice(size_t bytes) { return Make(bytes, MemoryKind::kDevice); }
  static void Set(const Buffer& pinned, int value) {
    std::memset(pinned.data(), value, pinned.bytes());
  }
  static bool Holds(const Buffer& pinned, int value) {
    for (size_t i = 0; i < pinned.bytes(); ++i) {
      if (pinned.data()[i] != static_cast<std::byte>(value)) return false;
    }
    return true;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_, other_;
  std::unique_ptr<Event> event_;
};

}  // namespace gyre
