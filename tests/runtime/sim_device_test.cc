// What sim alone does: memory of its own that shows misuse, bounded capacity and bandwidth, and
// streams that really run beside each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {
namespace {

using testing::HasSubstr;

Buffer Make(Device& device, size_t bytes, MemoryKind kind = MemoryKind::kDevice) {
  return std::move(Buffer::Allocate(device, kind, bytes)).value();
}

TEST(SimDeviceTest, FreshMemoryIsNotANumber) {
  const std::unique_ptr<Device> device = NewSimDevice({});
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
    const Buffer buffer = Make(*device, 808, kind);
    for (size_t i = 0; i < buffer.bytes() / sizeof(double); ++i) {
      EXPECT_TRUE(std::isnan(reinterpret_cast<const double*>(buffer.data())[i]));
    }
    for (size_t i = 0; i < buffer.bytes() / sizeof(float); ++i) {
      EXPECT_TRUE(std::isnan(reinterpret_cast<const float*>(buffer.data())[i]));
    }
  }
}

TEST(SimDeviceTest, CapacityBoundsDeviceMemoryAlone) {
  const std::unique_ptr<Device> device = NewSimDevice({.capacity_bytes = 1000});
  EXPECT_EQ(device->capacity_bytes(), 1000u);
  Buffer first = Make(*device, 600);
  const Buffer pinned = Make(*device, 5000, MemoryKind::kPinnedHost);
  EXPECT_EQ(device->Allocate(MemoryKind::kDevice, 401).status(),
            absl::ResourceExhaustedError("sim: out of device memory: 401 bytes asked for, 600 in "
                                         "use, capacity 1000 bytes"));
  const Buffer rest = Make(*device, 400);
  EXPECT_FALSE(device->Allocate(MemoryKind::kDevice, 1).ok());
  first = Buffer();
  Make(*device, 600);
}

// Copies whose ends stick out of an allocation, on either side, by one byte or by all.
TEST(SimDeviceTest, CopyRefusesRangesThatLeaveTheirAllocation) {
  const std::unique_ptr<Device> device = NewSimDevice({});
  const std::unique_ptr<Stream> stream = std::move(device->NewStream()).value();
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
    const Buffer buffer = Make(*device, 64, kind);
    std::vector<std::byte> host(300);
    const auto refused = [&](void* at, size_t bytes) {
      const absl::Status to = stream->Copy(at, host.data(), bytes);
      const absl::Status from = stream->Copy(host.data(), at, bytes);
      EXPECT_EQ(to, from);
      EXPECT_TRUE(to.ok() || absl::IsOutOfRange(to)) << to;
      return absl::IsOutOfRange(to);
    };
    EXPECT_FALSE(refused(buffer.data(), 64));
    EXPECT_FALSE(refused(buffer.data() + 63, 1));
    EXPECT_FALSE(refused(buffer.data() + 64, 0));
    EXPECT_TRUE(refused(buffer.data(), 65));
    EXPECT_TRUE(refused(buffer.data() + 63, 2));
    EXPECT_TRUE(refused(buffer.data() - 1, 2));
    EXPECT_TRUE(refused(buffer.data() - 1, 66));
    EXPECT_EQ(stream->Copy(buffer.data() + 8, host.data(), 60),
              absl::OutOfRangeError(absl::StrFormat(
                  "sim: [%p, %p) of 60 bytes leaves the %s memory [%p, %p) of 64 bytes",
                  buffer.data() + 8, buffer.data() + 68,
                  kind == MemoryKind::kDevice ? "device" : "pinned host", buffer.data(),
                  buffer.data() + 64)));
    EXPECT_TRUE(stream->Synchronize().ok()) << "a refused copy is not the stream's error";
  }
}

TEST(SimDeviceTest, AFreedAllocationIsForgotten) {
  const std::unique_ptr<Device> device = NewSimDevice({});
  const std::unique_ptr<Stream> stream = std::move(device->NewStream()).value();
  std::vector<std::byte> host(100);
  { const Buffer buffer = Make(*device, 64); }
  for (int i = 0; i < 10; ++i) {
    const Buffer buffer = Make(*device, 32 + i);
    EXPECT_TRUE(stream->Copy(host.data(), buffer.data(), 32 + i).ok());
    EXPECT_FALSE(stream->Copy(host.data(), buffer.data(), 33 + i).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
  }
}

// A stream whose work is held up by a gate, until Open.
class GatedStream {
 public:
  explicit GatedStream(Device& device) : stream_(std::move(device.NewStream()).value()) {
    (void)stream_->Call([gate = gate_.get_future().share()] {
      gate.wait();
      return absl::OkStatus();
    });
  }
  Stream& operator*() const { return *stream_; }
  Stream* operator->() const { return stream_.get(); }
  void Open() { gate_.set_value(); }

 private:
  std::promise<void> gate_;
  std::unique_ptr<Stream> stream_;
};

absl::Status Append(Stream& stream, std::vector<int>& to, int value) {
  return stream.Call([&to, value] {
    to.push_back(value);
    return absl::OkStatus();
  });
}

TEST(SimDeviceTest, StreamsRunBesideEachOther) {
  const std::unique_ptr<Device> device = NewSimDevice({});
  GatedStream blocked(*device);
  const std::unique_ptr<Stream> other = std::move(device->NewStream()).value();
  const std::unique_ptr<Event> event = std::move(device->NewEvent()).value();
  EXPECT_TRUE(blocked->Record(*event).ok());
  EXPECT_EQ(*event->Done(), false);
  EXPECT_TRUE(other->Synchronize().ok());
  blocked.Open();
  EXPECT_TRUE(blocked->Synchronize().ok());
  EXPECT_EQ(*event->Done(), true);
}

// A later Record, of work that is done or of work that never ends, does not move an earlier Wait.
TEST(SimDeviceTest, WaitKeepsTheRecordThatItFound) {
  const std::unique_ptr<Device> device = NewSimDevice({});
  std::vector<int> order;
  GatedStream producer(*device), endless(*device);
  const std::unique_ptr<Stream> idle = std::move(device->NewStream()).value();
  const std::unique_ptr<Stream> consumer = std::move(device->NewStream()).value();
  const std::unique_ptr<Stream> late = std::move(device->NewStream()).value();
  const std::unique_ptr<Event> event = std::move(device->NewEvent()).value();
  EXPECT_TRUE(Append(*producer, order, 1).ok());
  EXPECT_TRUE(producer->Record(*event).ok());
  EXPECT_TRUE(consumer->Wait(*event).ok());
  EXPECT_TRUE(Append(*consumer, order, 2).ok());
  EXPECT_TRUE(idle->Record(*event).ok());
  EXPECT_TRUE(late->Wait(*event).ok());
  EXPECT_TRUE(endless->Record(*event).ok());
  EXPECT_TRUE(late->Synchronize().ok()) << "waits for the idle stream alone";
  producer.Open();
  EXPECT_TRUE(consumer->Synchronize().ok()) << "waits for the producer alone";
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(*event->Done(), false);
  endless.Open();
}

// Lower bounds only: however busy the machine, the copies may not be faster.
TEST(SimDeviceTest, CopiesAreNoFasterThanTheBandwidth) {
  const std::unique_ptr<Device> device = NewSimDevice({.copy_bytes_per_s = 1e6});
  const std::unique_ptr<Stream> stream = std::move(device->NewStream()).value();
  const Buffer buffer = Make(*device, 10000);
  std::vector<uint8_t> from(10000), to(10000);
  std::iota(from.begin(), from.end(), 3);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(stream->Copy(buffer.data(), from.data(), from.size()).ok());
  EXPECT_TRUE(stream->Copy(to.data(), buffer.data(), to.size()).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_EQ(to, from);
}

TEST(SimDeviceTest, StreamsShareTheBandwidthOfAWay) {
  const std::unique_ptr<Device> device = NewSimDevice({.copy_bytes_per_s = 1e6});
  const std::unique_ptr<Stream> a = std::move(device->NewStream()).value();
  const std::unique_ptr<Stream> b = std::move(device->NewStream()).value();
  const Buffer buffer = Make(*device, 20000);
  const std::vector<uint8_t> from(10000);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(a->Copy(buffer.data(), from.data(), from.size()).ok());
  EXPECT_TRUE(b->Copy(buffer.data() + from.size(), from.data(), from.size()).ok());
  EXPECT_TRUE(a->Synchronize().ok());
  EXPECT_TRUE(b->Synchronize().ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace gyre
