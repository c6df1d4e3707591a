// What cpu and sim have in common: memory, order and errors as device.h promises them.
#include "engine/runtime/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/device/buffer.h"

namespace gyre {
namespace {

using testing::HasSubstr;

class DeviceTest : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::kCpu) {
      device_ = NewCpuDevice({.threads = 3});
    } else {
      device_ = NewSimDevice({.threads = 3, .delay_seed = 1});
    }
    stream_ = NewStream();
    event_ = NewEvent();
  }

  std::unique_ptr<Stream> NewStream() { return std::move(device_->NewStream()).value(); }
  std::unique_ptr<Event> NewEvent() { return std::move(device_->NewEvent()).value(); }
  Buffer Make(size_t bytes, MemoryKind kind = MemoryKind::kDevice) {
    return std::move(Buffer::Allocate(*device_, kind, bytes)).value();
  }

  static void Do(Stream& stream, const std::function<void()>& work) {
    (void)stream.Call([work] {
      work();
      return absl::OkStatus();
    });
  }

  // Work that fails.  The cpu says so at once, sim later.
  void Fail(Stream& stream, const absl::Status& status) {
    const absl::Status now = stream.Call([status] { return status; });
    if (GetParam() == DeviceKind::kCpu) {
      EXPECT_EQ(now, status);
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> event_;
};

INSTANTIATE_TEST_SUITE_P(Host, DeviceTest, testing::Values(DeviceKind::kCpu, DeviceKind::kSim),
                         [](const auto& info) { return std::string(DeviceKindName(info.param)); });

TEST_P(DeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device_->kind(), GetParam());
  EXPECT_EQ(stream_->kind(), GetParam());
  EXPECT_EQ(stream_->native(), nullptr);
  EXPECT_GT(device_->capacity_bytes(), size_t{1} << 20);
}

TEST_P(DeviceTest, MemoryIsAlignedAndWritable) {
  std::vector<Buffer> buffers;
  for (const size_t bytes : {1, 3, 4095, 4096, 4097, 100000}) {
    for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
      buffers.push_back(Make(bytes, kind));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().data()) % 4096, 0u);
      std::memset(buffers.back().data(), 1, bytes);
    }
  }
}

// The flags of the mapping that holds an address, as Linux tells them.
std::string MappingFlags(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(address);
  bool holds = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) holds = begin <= at && at < end;
    if (holds && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST_P(DeviceTest, MegabytesMayLieInHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP();
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
    const Buffer buffer = Make(size_t{8} << 20, kind);
    const auto* bytes = static_cast<const std::byte*>(buffer.data());
    EXPECT_THAT(MappingFlags(bytes + (size_t{4} << 20)), HasSubstr(" hg "));
  }
}

TEST_P(DeviceTest, ZeroBytesOfMemoryAreNull) {
  EXPECT_EQ(device_->Allocate(MemoryKind::kDevice, 0).value(), nullptr);
  device_->Free(MemoryKind::kDevice, nullptr);
}

TEST_P(DeviceTest, TooMuchMemoryIsAnErrorWithTheNumbers) {
  const Buffer used = Make(5000);
  const size_t capacity = device_->capacity_bytes();
  const absl::Status status = device_->Allocate(MemoryKind::kDevice, capacity).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  const std::string number = std::to_string(capacity);
  EXPECT_THAT(status.message(),
              HasSubstr(number + " bytes asked for, 5000 in use, capacity " + number + " bytes"));
  // The sum with what is in use must not wrap around.
  const size_t most = std::numeric_limits<size_t>::max();
  EXPECT_TRUE(absl::IsResourceExhausted(device_->Allocate(MemoryKind::kDevice, most).status()));
  // More than any machine's address space; pinned memory is not counted.
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (kind == MemoryKind::kPinnedHost) continue;  // the sanitizers' allocators abort
#endif
    EXPECT_TRUE(absl::IsResourceExhausted(device_->Allocate(kind, size_t{1} << 62).status()));
  }
}

TEST_P(DeviceTest, FreeingWhatIsNotAllocatedAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Buffer buffer = Make(10);
  EXPECT_DEATH(device_->Free(MemoryKind::kDevice, buffer.data() + 1), "allocations_.end");
  EXPECT_DEATH(device_->Free(MemoryKind::kPinnedHost, buffer.data()), "kind == kind");
}

TEST_P(DeviceTest, CopiesBetweenAllKindsOfMemory) {
  for (const size_t bytes : {size_t{4099}, (size_t{4} << 20) + 13}) {  // alone, and as a team
    std::vector<uint8_t> from(bytes), to(bytes);
    for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 251);
    const Buffer pinned = Make(bytes, MemoryKind::kPinnedHost);
    const Buffer a = Make(bytes), b = Make(bytes);
    EXPECT_TRUE(stream_->Copy(pinned.data(), from.data(), bytes).ok());
    EXPECT_TRUE(stream_->Copy(a.data(), pinned.data(), bytes).ok());
    EXPECT_TRUE(stream_->Copy(b.data(), a.data(), bytes).ok());
    EXPECT_TRUE(stream_->Copy(to.data(), b.data(), bytes).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    EXPECT_EQ(to, from);
  }
}

TEST_P(DeviceTest, CopiesOfZeroBytesDoNothing) {
  EXPECT_TRUE(stream_->Copy(nullptr, nullptr, 0).ok());
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_P(DeviceTest, WorkHasTheDevicesOpenMpThreads) {
  const auto threads_seen = [this] {
    int threads = 0;
    Do(*stream_, [&threads] { threads = omp_get_max_threads(); });
    EXPECT_TRUE(stream_->Synchronize().ok());
    return threads;
  };
  EXPECT_EQ(threads_seen(), 3);
  // A thread that did not make the stream.
  int threads = 0;
  std::thread([&] {
    omp_set_num_threads(5);
    threads = threads_seen();
  }).join();
  EXPECT_EQ(threads, 3);
}

TEST_P(DeviceTest, AnEventIsDoneIfNeverRecorded) {
  EXPECT_EQ(*event_->Done(), true);
  EXPECT_TRUE(stream_->Wait(*event_).ok());
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_P(DeviceTest, EventsMayBePolledFromAnyThread) {
  int written = 0;
  EXPECT_TRUE(stream_->Record(*event_).ok());
  Do(*stream_, [&written] { written = 1; });
  EXPECT_TRUE(stream_->Record(*event_).ok());
  int seen = 0;
  std::thread poller([&] {
    while (!*event_->Done()) std::this_thread::yield();
    seen = written;
  });
  poller.join();
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_P(DeviceTest, AnEventMayGoBeforeItsStreamComesToIt) {
  EXPECT_TRUE(stream_->Record(*event_).ok());
  const std::unique_ptr<Stream> other = NewStream();
  EXPECT_TRUE(other->Wait(*event_).ok());
  event_.reset();
  EXPECT_TRUE(other->Synchronize().ok());
}

TEST_P(DeviceTest, AnErrorStaysAndDropsLaterWork) {
  const absl::Status first = absl::DataLossError("first");
  int ran = 0, copied = 0;
  const int one = 1;
  Fail(*stream_, first);
  (void)stream_->Call([&ran] {
    ran = 1;
    return absl::InternalError("second");
  });
  (void)stream_->Copy(&copied, &one, sizeof(copied));
  EXPECT_EQ(stream_->Synchronize(), first);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(copied, 0);
  EXPECT_EQ(stream_->Synchronize(), first);
  EXPECT_EQ(stream_->Call([] { return absl::OkStatus(); }), first);
  EXPECT_EQ(stream_->Copy(&copied, &one, sizeof(copied)), first);
  EXPECT_EQ(stream_->Record(*event_), first);
  EXPECT_EQ(stream_->Wait(*NewEvent()), first);
}

TEST_P(DeviceTest, AnErrorReachesEventsAndTheStreamsThatWaitForThem) {
  const absl::Status error = absl::DataLossError("bad");
  const std::unique_ptr<Stream> waiting = NewStream(), free = NewStream();
  const std::unique_ptr<Event> before = NewEvent();
  EXPECT_TRUE(stream_->Record(*before).ok());
  Fail(*stream_, error);
  (void)stream_->Record(*event_);
  (void)waiting->Wait(*event_);
  int ran = 0;
  Do(*waiting, [&ran] { ran = 1; });
  EXPECT_EQ(waiting->Synchronize(), error);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(event_->Done().status(), error);
  EXPECT_EQ(*before->Done(), true);
  EXPECT_TRUE(free->Wait(*before).ok());
  EXPECT_TRUE(free->Synchronize().ok());
}

TEST_P(DeviceTest, AnEventCanBeWaitedFor) {
  EXPECT_TRUE(event_->Synchronize().ok());  // never recorded
  int ran = 0;
  Do(*stream_, [&ran] { ran = 1; });
  EXPECT_TRUE(stream_->Record(*event_).ok());
  EXPECT_TRUE(event_->Synchronize().ok());
  EXPECT_EQ(ran, 1);
  Fail(*stream_, absl::DataLossError("bad"));
  (void)stream_->Record(*event_);
  EXPECT_EQ(event_->Synchronize(), absl::DataLossError("bad"));
}

TEST_P(DeviceTest, AStreamThatGoesFinishesItsWorkInOrder) {
  std::vector<int> order, expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  for (const int i : expected) {
    Do(*stream_, [&order, i] { order.push_back(i); });
  }
  stream_.reset();
  EXPECT_EQ(order, expected);
}

TEST_P(DeviceTest, AStreamThatFailedGoesQuietly) {
  Fail(*stream_, absl::DataLossError("bad"));
  (void)stream_->Record(*event_);
  stream_.reset();
  EXPECT_EQ(event_->Done().status(), absl::DataLossError("bad"));
}

TEST_P(DeviceTest, StreamsOnManyThreads) {
  std::vector<std::thread> threads;
  std::vector<int> sums(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::unique_ptr<Stream> stream = NewStream();
      const std::unique_ptr<Event> event = NewEvent();
      const Buffer buffer = Make(16);
      for (int i = 0; i < 20; ++i) {
        Do(*stream, [&sums, t, i] { sums[t] += i; });
        (void)stream->Record(*event);
      }
      EXPECT_TRUE(stream->Synchronize().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<int>(4, 190));
}

TEST(ParseDeviceKindTest, KnowsTheThreeDevices) {
  EXPECT_EQ(*ParseDeviceKind("cpu"), DeviceKind::kCpu);
  EXPECT_EQ(*ParseDeviceKind("sim"), DeviceKind::kSim);
  EXPECT_EQ(*ParseDeviceKind("cuda"), DeviceKind::kCuda);
  EXPECT_EQ(DeviceKindName(DeviceKind::kCuda), "cuda");
  for (const char* wrong : {"", "CPU", "gpu", "cpu "}) {
    const absl::Status status = ParseDeviceKind(wrong).status();
    EXPECT_EQ(status, absl::InvalidArgumentError("unknown device \"" + std::string(wrong) +
                                                 "\"; expected cpu, sim or cuda"));
  }
}

TEST(DeviceDeathTest, ZeroThreadsAbort) {
  EXPECT_DEATH(NewCpuDevice({.threads = 0}), "threads >= 1");
  EXPECT_DEATH(NewSimDevice({.threads = 0}), "threads >= 1");
}

}  // namespace
}  // namespace gyre
