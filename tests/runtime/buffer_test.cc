#include "engine/runtime/device/buffer.h"

#include <gtest/gtest.h>

#include <utility>

namespace gyre {
namespace {

// A sim device of 100 bytes: what is free shows who owns what.
class BufferTest : public testing::Test {
 protected:
  bool Free(size_t bytes) { return Buffer::Allocate(*device_, MemoryKind::kDevice, bytes).ok(); }
  Buffer Make(size_t bytes) {
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(*device_, MemoryKind::kDevice, bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }

  std::unique_ptr<Device> device_ = NewSimDevice({.capacity_bytes = 100});
};

TEST_F(BufferTest, OwnsItsMemoryUntilItGoes) {
  {
    const Buffer buffer = Make(60);
    EXPECT_NE(buffer.data(), nullptr);
    EXPECT_EQ(buffer.bytes(), 60u);
    EXPECT_TRUE(Free(40));
    EXPECT_FALSE(Free(41));
  }
  EXPECT_TRUE(Free(100));
}

TEST_F(BufferTest, ZeroBytesAreAnEmptyBuffer) {
  const Buffer empty = Make(0);
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_EQ(empty.bytes(), 0u);
  EXPECT_EQ(Buffer().data(), nullptr);
}

TEST_F(BufferTest, MovingHandsTheMemoryOver) {
  Buffer a = Make(60);
  std::byte* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.bytes(), 60u);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.bytes(), 0u);
  EXPECT_FALSE(Free(41));
}

TEST_F(BufferTest, MoveAssignmentFreesTheOldMemoryAtOnce) {
  Buffer a = Make(60);
  Buffer b = Make(30);
  std::byte* const data = b.data();
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
  EXPECT_EQ(a.bytes(), 30u);
  EXPECT_EQ(b.data(), nullptr);
  EXPECT_TRUE(Free(70));
  EXPECT_FALSE(Free(71));
  a = Buffer();
  EXPECT_TRUE(Free(100));
}

TEST_F(BufferTest, SelfMoveKeepsTheMemory) {
  Buffer a = Make(60);
  std::byte* const data = a.data();
  Buffer& same = a;
  a = std::move(same);
  EXPECT_EQ(a.data(), data);
  EXPECT_EQ(a.bytes(), 60u);
}

TEST_F(BufferTest, PinnedHostMemoryIsGivenBackAsSuch) {
  Buffer pinned = Buffer::Allocate(*device_, MemoryKind::kPinnedHost, 1000).value();
  Buffer moved = std::move(pinned);
  EXPECT_TRUE(Free(100));
}

TEST_F(BufferTest, PassesOnTheDevicesError) {
  EXPECT_TRUE(
      absl::IsResourceExhausted(Buffer::Allocate(*device_, MemoryKind::kDevice, 101).status()));
}

TEST_F(BufferTest, ABufferThatOutlivesItsDeviceAborts) {
  EXPECT_DEATH(
      {
        const Buffer buffer = Make(1);
        device_.reset();
      },
      "allocations_.empty");
}

}  // namespace
}  // namespace gyre
