// What a step relies on, done by copies alone, which every device has: order on a stream, waits
// between streams, captured work.  Runs on sim; with GYRE_TEST_DEVICE=cuda, on the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "engine/runtime/device/stop_watch.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

class AnyStreamTest : public testing::Test {
 protected:
  std::unique_ptr<Stream> NewStream() { return std::move(device().NewStream()).value(); }
  std::unique_ptr<Event> NewEvent() { return std::move(device().NewEvent()).value(); }
  Buffer Make(MemoryKind kind, size_t bytes) {
    return std::move(Buffer::Allocate(device(), kind, bytes)).value();
  }
  Device& device() { return *opened_.device; }
  static bool Holds(const Buffer& buffer, int value) {
    return std::all_of(buffer.data(), buffer.data() + buffer.bytes(),
                       [&](std::byte b) { return b == static_cast<std::byte>(value); });
  }

  const TestDevice opened_ = OpenTestDevice(NamedDevice().value_or(DeviceKind::kSim));
};

TEST_F(AnyStreamTest, BytesComeBackFromAnyOffset) {
  const auto stream = NewStream();
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{3}, size_t{255}, size_t{4097}, (size_t{1} << 20) + 1}) {
    for (const size_t offset : {0, 1, 5}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes at " << offset);
      const Buffer first = Make(MemoryKind::kDevice, bytes + offset);
      const Buffer second = Make(MemoryKind::kDevice, bytes + 2 * offset);
      const Buffer pinned = Make(MemoryKind::kPinnedHost, bytes);
      std::vector<uint8_t> in(bytes), out(bytes);
      for (size_t i = 0; i < bytes; ++i) in[i] = static_cast<uint8_t>(i * 7 + i / 251);
      EXPECT_TRUE(stream->Copy(first.data() + offset, in.data(), bytes).ok());
      EXPECT_TRUE(stream->Copy(second.data() + 2 * offset, first.data() + offset, bytes).ok());
      EXPECT_TRUE(stream->Copy(pinned.data(), second.data() + 2 * offset, bytes).ok());
      EXPECT_TRUE(stream->Copy(out.data(), second.data() + 2 * offset, bytes).ok());
      EXPECT_TRUE(stream->Synchronize().ok());
      EXPECT_EQ(out, in);
      if (bytes > 0) {
        EXPECT_EQ(std::memcmp(pinned.data(), in.data(), bytes), 0);
      }
    }
  }
}

// One stream fills a buffer over and over, another one empties it: without either wait a value is
// lost.
TEST_F(AnyStreamTest, EventsOrderTwoStreams) {
  constexpr size_t kBytes = size_t{2} << 20;
  constexpr int kTurns = 40;
  const auto fills = NewStream(), empties = NewStream();
  const auto full = NewEvent(), empty = NewEvent();
  const Buffer between = Make(MemoryKind::kDevice, kBytes);
  std::vector<Buffer> in, out;
  for (int turn = 0; turn < kTurns; ++turn) {
    in.push_back(Make(MemoryKind::kPinnedHost, kBytes));
    out.push_back(Make(MemoryKind::kPinnedHost, kBytes));
    std::memset(in.back().data(), turn + 1, kBytes);
    std::memset(out.back().data(), 0, kBytes);
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    EXPECT_TRUE(fills->Wait(*empty).ok());
    EXPECT_TRUE(fills->Copy(between.data(), in[turn].data(), kBytes).ok());
    EXPECT_TRUE(fills->Record(*full).ok());
    EXPECT_TRUE(empties->Wait(*full).ok());
    EXPECT_TRUE(empties->Copy(out[turn].data(), between.data(), kBytes).ok());
    EXPECT_TRUE(empties->Record(*empty).ok());
  }
  EXPECT_TRUE(empty->Synchronize().ok());
  EXPECT_TRUE(*empty->Done());
  EXPECT_TRUE(fills->Synchronize().ok());
  for (int turn = 0; turn < kTurns; ++turn) EXPECT_TRUE(Holds(out[turn], turn + 1)) << turn;
}

TEST_F(AnyStreamTest, AStopWatchWaitsForItsStream) {
  constexpr size_t kBytes = size_t{1} << 20;
  const auto stream = NewStream();
  const auto watch = std::move(NewStopWatch(*stream)).value();
  const Buffer in = Make(MemoryKind::kPinnedHost, kBytes),
               out = Make(MemoryKind::kPinnedHost, kBytes);
  for (int turn = 1; turn < 4; ++turn) {
    std::memset(in.data(), turn, kBytes);
    EXPECT_TRUE(watch->Start().ok());
    EXPECT_TRUE(stream->Copy(out.data(), in.data(), kBytes).ok());
    EXPECT_TRUE(watch->Stop().ok());
    EXPECT_GT(watch->Seconds().value(), 0);
    EXPECT_TRUE(Holds(out, turn));
  }
}

TEST_F(AnyStreamTest, ReplayedWorkReadsWhatIsThere) {
  const auto stream = NewStream(), other = NewStream();
  const auto done = NewEvent();
  const Buffer in = Make(MemoryKind::kPinnedHost, 1000), out = Make(MemoryKind::kPinnedHost, 1000);
  const Buffer first = Make(MemoryKind::kDevice, 1000), second = Make(MemoryKind::kDevice, 1000);
  ASSERT_TRUE(stream->BeginCapture().ok());
  EXPECT_TRUE(stream->Copy(first.data(), in.data(), 1000).ok());
  EXPECT_TRUE(stream->Copy(second.data(), first.data(), 1000).ok());
  EXPECT_TRUE(stream->Copy(out.data(), second.data(), 1000).ok());
  const auto graph = stream->EndCapture().value();
  for (int turn = 1; turn < 20; ++turn) {
    Stream& runs = turn % 3 == 0 ? *other : *stream;
    std::memset(in.data(), turn, in.bytes());
    EXPECT_TRUE(graph->Replay(runs).ok());
    EXPECT_TRUE(runs.Record(*done).ok());
    EXPECT_TRUE(done->Synchronize().ok());
    EXPECT_TRUE(Holds(out, turn)) << turn;
  }
}

// Two streams fork from the captured one, to bring and to take away, piece by piece, through one
// place: without one of the waits a piece is lost.
TEST_F(AnyStreamTest, StreamsForkAndJoinWithinCapturedWork) {
  constexpr int kPieces = 8;
  constexpr size_t kBytes = size_t{1} << 18;
  const auto stream = NewStream(), brings = NewStream(), takes = NewStream();
  const auto begun = NewEvent(), brought = NewEvent(), moved = NewEvent(), taken = NewEvent();
  const Buffer in = Make(MemoryKind::kPinnedHost, kPieces * kBytes),
               out = Make(MemoryKind::kPinnedHost, kPieces * kBytes);
  const Buffer first = Make(MemoryKind::kDevice, kBytes),
               second = Make(MemoryKind::kDevice, kBytes);
  ASSERT_TRUE(stream->BeginCapture().ok());
  EXPECT_TRUE(stream->Record(*begun).ok());
  EXPECT_TRUE(brings->Wait(*begun).ok());
  for (int piece = 0; piece < kPieces; ++piece) {
    EXPECT_TRUE(brings->Copy(first.data(), in.data() + piece * kBytes, kBytes).ok());
    EXPECT_TRUE(brings->Record(*brought).ok());
    EXPECT_TRUE(stream->Wait(*brought).ok());
    if (piece > 0) {
      EXPECT_TRUE(stream->Wait(*taken).ok());
    }
    EXPECT_TRUE(stream->Copy(second.data(), first.data(), kBytes).ok());
    EXPECT_TRUE(stream->Record(*moved).ok());
    if (piece + 1 < kPieces) {
      EXPECT_TRUE(brings->Wait(*moved).ok());
    }
    EXPECT_TRUE(takes->Wait(*moved).ok());
    EXPECT_TRUE(takes->Copy(out.data() + piece * kBytes, second.data(), kBytes).ok());
    EXPECT_TRUE(takes->Record(*taken).ok());
  }
  EXPECT_TRUE(stream->Wait(*taken).ok());
  const auto graph = stream->EndCapture().value();
  for (int turn = 1; turn < 5; ++turn) {
    for (size_t i = 0; i < in.bytes(); ++i) {
      in.data()[i] = static_cast<std::byte>(i / kBytes * 7 + static_cast<size_t>(turn));
    }
    EXPECT_TRUE(graph->Replay(*stream).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(std::memcmp(in.data(), out.data(), in.bytes()), 0) << turn;
  }
}

TEST_F(AnyStreamTest, TooMuchMemoryIsAnErrorThatPasses) {
  const auto none = Buffer::Allocate(device(), MemoryKind::kDevice, size_t{1} << 46);
  EXPECT_TRUE(absl::IsResourceExhausted(none.status())) << none.status();
  const auto stream = NewStream();
  const Buffer in = Make(MemoryKind::kPinnedHost, 10), out = Make(MemoryKind::kPinnedHost, 10);
  std::memset(in.data(), 3, 10);
  EXPECT_TRUE(stream->Copy(out.data(), in.data(), 10).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_TRUE(Holds(out, 3));
}

}  // namespace
}  // namespace gyre
