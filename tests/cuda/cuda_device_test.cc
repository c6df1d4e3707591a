// Memory and order on the cuda device.  training_step_test shows that it calls nothing that waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/cuda_device_fixture.h"

namespace gyre {
namespace {

using testing::HasSubstr;

// --- Memory --------------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, MemoryIsAligned) {
  std::vector<Buffer> buffers;
  for (const size_t bytes : {1, 3, 4095, 4096, 4097, 100000}) {
    for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
      buffers.push_back(Make(bytes, kind));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().data()) % 4096, 0u);
      EXPECT_EQ(fake_cudart::IsDeviceMemory(buffers.back().data(), bytes),
                kind == MemoryKind::kDevice);
      if (kind == MemoryKind::kPinnedHost) Set(buffers.back(), 1);
    }
  }
}

TEST_F(CudaDeviceTest, ZeroBytesOfMemoryAreNull) {
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
    EXPECT_EQ(device_->Allocate(kind, 0).value(), nullptr);
    device_->Free(kind, nullptr);
  }
}

TEST_F(CudaDeviceTest, TooMuchMemoryIsAnErrorWithTheNumbers) {
  const Buffer used = MakeOnDevice(5000);
  const size_t capacity = device_->capacity_bytes();
  const std::string number = std::to_string(capacity);
  EXPECT_EQ(
      device_->Allocate(MemoryKind::kDevice, capacity).status(),
      absl::ResourceExhaustedError("cuda: out of device memory: " + number +
                                   " bytes asked for, 5000 in use, capacity " + number + " bytes"));
  const size_t most = std::numeric_limits<size_t>::max();
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
    for (const size_t bytes : {most, most - 1, size_t{1} << 62}) {
      EXPECT_TRUE(absl::IsResourceExhausted(device_->Allocate(kind, bytes).status()));
    }
  }
  EXPECT_EQ(fake_cudart::LastError(), kSuccess);
  EXPECT_EQ(fake_cudart::Calls("cudaMalloc"), 1);  // the device knew without asking
}

TEST_F(CudaDeviceTest, WhatCudaRefusesToAllocateIsNamed) {
  fake_cudart::FailCall("cudaMalloc", kOutOfMemory);
  EXPECT_EQ(device_->Allocate(MemoryKind::kDevice, 1000).status(),
            absl::ResourceExhaustedError(
                "cuda: out of device memory: 1000 bytes asked for, 0 in use, capacity " +
                std::to_string(device_->capacity_bytes()) +
                " bytes: cudaMalloc of 5096 bytes: out of memory (cudaErrorMemoryAllocation)"));
  fake_cudart::FailCall("cudaHostAlloc", kOutOfMemory);
  EXPECT_EQ(device_->Allocate(MemoryKind::kPinnedHost, 1000).status(),
            absl::ResourceExhaustedError(
                "cuda: cudaHostAlloc of 5096 bytes: out of memory (cudaErrorMemoryAllocation)"));
  EXPECT_EQ(fake_cudart::LastError(), kSuccess);
}

TEST_F(CudaDeviceTest, WhatIsFreedMayBeUsedAgain) {
  const size_t most = device_->capacity_bytes() - 4096;
  for (int i = 0; i < 3; ++i) (void)MakeOnDevice(most);
  fake_cudart::FailCall("cudaFree", kInvalidValue);
  (void)MakeOnDevice(most);
  EXPECT_EQ(fake_cudart::LastError(), kSuccess);
}

TEST_F(CudaDeviceTest, FreeingWhatIsNotAllocatedAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Buffer buffer = Make(10);
  EXPECT_DEATH(device_->Free(MemoryKind::kPinnedHost, buffer.data() + 1), "allocations_.end");
  EXPECT_DEATH(device_->Free(MemoryKind::kDevice, buffer.data()), "kind == kind");
  EXPECT_DEATH(device_.reset(), "allocations_.empty");
}

TEST_F(CudaDeviceTest, HostCodeCannotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Buffer buffer = MakeOnDevice(10);
  EXPECT_DEATH(std::memset(buffer.data(), 0, 1), "");
}

// --- Order ---------------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, CopiesBetweenAllKindsOfMemory) {
  constexpr size_t kBytes = 4099;
  std::vector<uint8_t> from(kBytes), to(kBytes);
  std::iota(from.begin(), from.end(), 7);
  const Buffer pinned = Make(kBytes);
  const Buffer a = MakeOnDevice(kBytes), b = MakeOnDevice(kBytes);
  EXPECT_TRUE(stream_->Copy(pinned.data(), from.data(), kBytes).ok());
  EXPECT_TRUE(stream_->Copy(a.data(), pinned.data(), kBytes).ok());
  EXPECT_TRUE(stream_->Copy(b.data(), a.data(), kBytes).ok());
  EXPECT_TRUE(stream_->Copy(to.data(), b.data(), kBytes).ok());
  EXPECT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(to, from);
  EXPECT_EQ(fake_cudart::Calls("pageable copy"), 2);
}

TEST_F(CudaDeviceTest, CopiesOfZeroBytesDoNothing) {
  EXPECT_TRUE(stream_->Copy(nullptr, nullptr, 0).ok());
  EXPECT_EQ(fake_cudart::Calls("cudaMemcpyAsync"), 0);
}

// from -> on_device on one stream, on_device -> to on another.
TEST_F(CudaDeviceTest, AWaitOrdersTwoStreamsAndNothingElseDoes) {
  for (const bool wait : {true, false}) {
    const Buffer from = Make(100), to = Make(100), on_device = MakeOnDevice(100);
    Set(from, 5);
    EXPECT_TRUE(other_->Copy(on_device.data(), from.data(), 100).ok());
    EXPECT_TRUE(other_->Record(*event_).ok());
    if (wait) {
      EXPECT_TRUE(stream_->Wait(*event_).ok());
    }
    EXPECT_TRUE(stream_->Copy(to.data(), on_device.data(), 100).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    EXPECT_TRUE(Holds(to, wait ? 5 : 0xFF));
  }
}

TEST_F(CudaDeviceTest, ALaterRecordDoesNotMoveAWait) {
  const Buffer from = Make(10), to = Make(10);
  Set(from, 1);
  EXPECT_TRUE(other_->Record(*event_).ok());
  EXPECT_TRUE(stream_->Wait(*event_).ok());
  EXPECT_TRUE(other_->Copy(to.data(), from.data(), 10).ok());
  EXPECT_TRUE(other_->Record(*event_).ok());
  EXPECT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE(Holds(to, 0xFF));
  EXPECT_TRUE(event_->Synchronize().ok());
  EXPECT_TRUE(Holds(to, 1));
}

TEST_F(CudaDeviceTest, AnEventIsDoneOnceItsWorkIs) {
  EXPECT_EQ(*event_->Done(), true);  // never recorded
  EXPECT_TRUE(event_->Synchronize().ok());
  EXPECT_TRUE(stream_->Wait(*event_).ok());
  const Buffer from = Make(10), to = Make(10);
  Set(from, 1);
  EXPECT_TRUE(stream_->Copy(to.data(), from.data(), 10).ok());
  EXPECT_TRUE(stream_->Record(*event_).ok());
  EXPECT_EQ(*event_->Done(), false);
  EXPECT_EQ(fake_cudart::LastError(), kSuccess);  // not for the next kernel launch to report
  while (!*event_->Done()) {
  }
  EXPECT_TRUE(Holds(to, 1));
}

TEST_F(CudaDeviceTest, AStreamThatGoesFinishesItsWork) {
  const Buffer from = Make(10), to = Make(10);
  Set(from, 1);
  EXPECT_TRUE(stream_->Copy(to.data(), from.data(), 10).ok());
  stream_.reset();
  EXPECT_TRUE(Holds(to, 1));
}

TEST_F(CudaDeviceTest, HostCodeIsRefused) {
  int ran = 0;
  const absl::Status status = stream_->Call([&ran] {
    ran = 1;
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(Message(status), HasSubstr("host code cannot run on a GPU"));
  EXPECT_EQ(stream_->Synchronize(), status);
  EXPECT_EQ(ran, 0);
}

// Each rank of a program is a thread, with a GPU of its own; their current GPU begins as 0.
TEST_F(CudaDeviceTest, EveryCallSetsTheGpuOfItsThread) {
  Reboot({.gpus = {{}, {}, {}}});
  Open({.local_rank = 2, .local_ranks = 3});
  Buffer from = Make(10), to = Make(10), on_device = MakeOnDevice(10);
  Set(from, 3);
  std::unique_ptr<Graph> graph;
  const auto in_new_thread = [](const std::function<absl::Status()>& call) {
    absl::Status status;
    std::thread([&] { status = call(); }).join();
    EXPECT_TRUE(status.ok()) << status;
  };
  in_new_thread([&] { return stream_->Copy(on_device.data(), from.data(), 10); });
  in_new_thread([&] { return stream_->Record(*event_); });
  in_new_thread([&] { return event_->Done().status(); });
  in_new_thread([&] { return event_->Synchronize(); });
  in_new_thread([&] { return stream_->Wait(*event_); });
  in_new_thread([&] {
    RETURN_IF_ERROR(stream_->BeginCapture());
    EXPECT_EQ(fake_cudart::Enqueue(stream_->native(), "captured"), kSuccess);
    RETURN_IF_ERROR(stream_->Copy(to.data(), on_device.data(), 10));
    RETURN_IF_ERROR(NewCudaDevice({.local_ranks = 3}).status());  // sets GPU 0
    ASSIGN_OR_RETURN(graph, stream_->EndCapture());
    return absl::OkStatus();
  });
  in_new_thread([&] { return graph->Replay(*stream_); });
  in_new_thread([&] { return stream_->Synchronize(); });
  EXPECT_TRUE(Holds(to, 3));
  in_new_thread([&] {
    EXPECT_EQ(fake_cudart::Enqueue(stream_->native(), "kernel"), kSuccess);
    return absl::OkStatus();
  });
  in_new_thread([&] { return device_->NewStream().status(); });
  in_new_thread([&] { return device_->NewEvent().status(); });
  in_new_thread([&] { return device_->Allocate(MemoryKind::kDevice, 0).status(); });
  in_new_thread([&] {
    const Buffer gone = std::move(on_device);
    return absl::OkStatus();
  });
  in_new_thread([&] {
    graph.reset();
    event_.reset();
    EXPECT_EQ(fake_cudart::LastError(), kSuccess);
    return absl::OkStatus();
  });
}

// --- Host code -----------------------------------------------------------------------------------

class CudaHostCodeTest : public CudaDeviceTest {
 protected:
  void Do(const std::function<void()>& work) {
    const auto call = [work] { return work(), absl::OkStatus(); };
    EXPECT_TRUE(stream_->CallOnHost(call).ok());
  }
};

TEST_F(CudaHostCodeTest, HostCodeRunsInItsTurn) {
  const Buffer pinned = Make(1), found = Make(1), device = MakeOnDevice(1);
  Set(pinned, 3);
  EXPECT_TRUE(stream_->Copy(device.data(), pinned.data(), 1).ok());
  Do([&] { *pinned.data() = std::byte{5}; });
  EXPECT_TRUE(stream_->Copy(found.data(), device.data(), 1).ok());
  EXPECT_EQ(*pinned.data(), std::byte{3});  // nobody has asked for it yet
  EXPECT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(*pinned.data(), std::byte{5});
  EXPECT_EQ(*found.data(), std::byte{3});
}

TEST_F(CudaHostCodeTest, ErrorOfHostCodeComesOutOfWhatIsCalledNext) {
  const absl::Status lost = absl::DataLossError("lost");
  bool ran = false;
  EXPECT_TRUE(stream_->CallOnHost([&] { return lost; }).ok());
  Do([&] { ran = true; });
  EXPECT_TRUE(stream_->Record(*event_).ok());
  EXPECT_TRUE(other_->Wait(*event_).ok());
  EXPECT_EQ(other_->Synchronize(), lost);
  EXPECT_EQ(event_->Synchronize(), lost);
  EXPECT_EQ(stream_->CallOnHost([] { return absl::OkStatus(); }), lost);
  EXPECT_EQ(stream_->Synchronize(), lost);
  EXPECT_FALSE(ran);
}

TEST_F(CudaDeviceTest, HostCodeIsNotCapturedAndCallsNothingOfCuda) {
  EXPECT_TRUE(stream_->BeginCapture().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(stream_->CallOnHost([] { return absl::OkStatus(); })));
  EXPECT_FALSE(stream_->EndCapture().ok());
  EXPECT_TRUE(stream_->CallOnHost([&] { return device_->NewStream().status(); }).ok());
  EXPECT_THAT(stream_->Synchronize().message(), HasSubstr("cudaErrorNotPermitted"));
}

}  // namespace
}  // namespace gyre
