// Captured work on cpu and sim: written down, not run; replayed any number of times, in order with
// what is around it; of streams that are forked and joined, in the order that the captured events
// say; refused where a GPU would refuse it.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "engine/runtime/device/buffer.h"

namespace gyre {
namespace {

class CaptureTest : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override { Open(1); }

  void Open(uint64_t delay_seed) {
    graph_.reset();
    order_.clear();
    streams_.clear();
    device_ = GetParam() == DeviceKind::kCpu ? NewCpuDevice({})
                                             : NewSimDevice({.delay_seed = delay_seed});
    for (int s = 0; s < 3; ++s) streams_.push_back(std::move(device_->NewStream()).value());
    for (auto& event : events_) event = std::move(device_->NewEvent()).value();
  }

  absl::Status Append(int stream, int value) {
    return streams_[stream]->Call([this, value] {
      std::lock_guard lock(mutex_);
      order_.push_back(value);
      return absl::OkStatus();
    });
  }
  absl::Status Fork(int from, int to, int event = 0) {
    RETURN_IF_ERROR(streams_[from]->Record(*events_[event]));
    return streams_[to]->Wait(*events_[event]);
  }
  absl::Status Begin() { return streams_[0]->BeginCapture(); }
  absl::Status End() {
    ASSIGN_OR_RETURN(graph_, streams_[0]->EndCapture());
    return absl::OkStatus();
  }
  std::vector<int> Order() {
    EXPECT_TRUE(streams_[0]->Synchronize().ok());
    std::lock_guard lock(mutex_);
    return order_;
  }
  std::vector<int> Replayed() {
    order_.clear();
    EXPECT_TRUE(graph_->Replay(*streams_[0]).ok());
    return Order();
  }

  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unique_ptr<Event> events_[3];
  std::unique_ptr<Graph> graph_;
  std::mutex mutex_;
  std::vector<int> order_;
};

INSTANTIATE_TEST_SUITE_P(Host, CaptureTest, testing::Values(DeviceKind::kCpu, DeviceKind::kSim),
                         [](const auto& info) { return std::string(DeviceKindName(info.param)); });

TEST_P(CaptureTest, RunsWhenReplayedAndInOrder) {
  EXPECT_TRUE(Append(0, 1).ok());
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(Append(0, 2).ok());
  EXPECT_TRUE(Append(0, 3).ok());
  ASSERT_TRUE(End().ok());
  EXPECT_EQ(Order(), (std::vector<int>{1}));
  EXPECT_TRUE(graph_->Replay(*streams_[0]).ok());
  EXPECT_TRUE(Append(0, 4).ok());
  EXPECT_TRUE(graph_->Replay(*streams_[0]).ok());
  EXPECT_EQ(Order(), (std::vector<int>{1, 2, 3, 4, 2, 3}));
}

TEST_P(CaptureTest, AnEmptyCaptureIsAnEmptyGraph) {
  ASSERT_TRUE(Begin().ok());
  ASSERT_TRUE(End().ok());
  EXPECT_TRUE(graph_->Replay(*streams_[0]).ok());
  EXPECT_TRUE(streams_[0]->Synchronize().ok());
}

TEST_P(CaptureTest, AGraphRunsOnAnotherStreamToo) {
  const Buffer memory = *Buffer::Allocate(*device_, MemoryKind::kPinnedHost, 2 * sizeof(int));
  auto* const values = reinterpret_cast<int*>(memory.data());
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(Append(0, 1).ok());
  EXPECT_TRUE(streams_[0]->Copy(values + 1, values, sizeof(int)).ok());
  ASSERT_TRUE(End().ok());
  streams_.clear();  // a graph needs its device, not the stream that was captured
  const auto other = std::move(device_->NewStream()).value();
  for (const int value : {5, 7}) {
    values[0] = value;
    EXPECT_TRUE(graph_->Replay(*other).ok());
    EXPECT_TRUE(other->Synchronize().ok());
    EXPECT_EQ(values[1], value) << "what is there at the replay";
  }
  EXPECT_EQ(order_, (std::vector<int>{1, 1}));
}

TEST_P(CaptureTest, WaitingForTheHostIsRefusedAndSpoilsTheCapture) {
  const std::pair<const char*, std::function<absl::Status()>> calls[] = {
      {"Synchronize", [&] { return streams_[0]->Synchronize(); }},
      {"BeginCapture", [&] { return streams_[0]->BeginCapture(); }}};
  for (const auto& [name, call] : calls) {
    ASSERT_TRUE(Begin().ok());
    const absl::Status expected =
        absl::FailedPreconditionError(std::string(name) + " within a capture");
    EXPECT_EQ(call(), expected);
    EXPECT_TRUE(Append(0, 1).ok());
    EXPECT_EQ(streams_[0]->EndCapture().status(), expected);
  }
  EXPECT_EQ(Order(), (std::vector<int>{}));  // and the stream goes on
  EXPECT_TRUE(Append(0, 2).ok());
  EXPECT_EQ(Order(), (std::vector<int>{2}));
  EXPECT_EQ(streams_[0]->EndCapture().status(),
            absl::FailedPreconditionError("EndCapture without BeginCapture"));
}

// 1 on the first stream, then 2 on the second, then 3 on the third, and 4 behind that.
TEST_P(CaptureTest, ReplaysInTheOrderOfItsEvents) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Open(seed);
    ASSERT_TRUE(Begin().ok());
    EXPECT_TRUE(Append(0, 1).ok());
    EXPECT_TRUE(Fork(0, 1).ok());
    EXPECT_TRUE(Append(1, 2).ok());
    EXPECT_TRUE(Fork(1, 2).ok());  // the same event again
    EXPECT_TRUE(Append(2, 3).ok());
    EXPECT_TRUE(Fork(2, 0, 1).ok());  // the second stream is back by the third
    EXPECT_TRUE(Append(0, 4).ok());
    ASSERT_TRUE(End().ok());
    EXPECT_TRUE(order_.empty());
    for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(Replayed(), (std::vector<int>{1, 2, 3, 4}));
    // The streams that joined are as they were.
    order_.clear();
    EXPECT_TRUE(Append(1, 5).ok());
    EXPECT_TRUE(streams_[1]->Synchronize().ok());
    EXPECT_EQ(order_, (std::vector<int>{5}));
  }
}

TEST_P(CaptureTest, StreamsAndEventsAreForOneCaptureAfterTheOther) {
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(Begin().ok());
    EXPECT_TRUE(Fork(0, 1).ok());
    EXPECT_TRUE(Append(1, turn).ok());
    EXPECT_TRUE(Fork(1, 0, 1).ok());
    ASSERT_TRUE(End().ok());
    EXPECT_EQ(Replayed(), (std::vector<int>{turn}));
    // Recorded outside of a capture they are as any other.
    EXPECT_TRUE(Fork(0, 1).ok());
    EXPECT_TRUE(*events_[0]->Done() || GetParam() == DeviceKind::kSim);
    EXPECT_TRUE(events_[0]->Synchronize().ok());
  }
}

// Of the captured stream, and of one that joined it.
TEST_P(CaptureTest, ErrorsOfReplayedWorkStay) {
  for (const int failing : {0, 1}) {
    Open(1);
    ASSERT_TRUE(Begin().ok());
    EXPECT_TRUE(Fork(0, 1).ok());
    EXPECT_TRUE(streams_[failing]->Call([] { return absl::DataLossError("bad"); }).ok());
    EXPECT_TRUE(Fork(1, 0, 1).ok());
    EXPECT_TRUE(Append(0, 1).ok());
    ASSERT_TRUE(End().ok());
    for (int turn = 0; turn < 2; ++turn) {  // at once or late, and for good
      absl::Status status = graph_->Replay(*streams_[0]);
      status.Update(streams_[0]->Synchronize());
      EXPECT_EQ(status, absl::DataLossError("bad"));
    }
    EXPECT_TRUE(order_.empty());
  }
}

absl::Status NotBack(int number) {
  return absl::FailedPreconditionError(
      "EndCapture: expected a wait for the last work of each stream that joined; of number " +
      std::to_string(number) + " there is none");
}

TEST_P(CaptureTest, AStreamThatIsNotBackSpoilsTheCapture) {
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(Fork(0, 1).ok());  // even if nothing was put on it
  EXPECT_EQ(End(), NotBack(1));
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(Fork(0, 2).ok());
  EXPECT_TRUE(Fork(0, 1).ok());
  EXPECT_TRUE(Append(1, 1).ok());
  EXPECT_TRUE(Append(2, 2).ok());
  EXPECT_TRUE(Fork(2, 0, 1).ok());
  EXPECT_TRUE(Fork(1, 0, 1).ok());
  EXPECT_TRUE(Append(1, 3).ok());  // after the wait
  EXPECT_EQ(End(), NotBack(2));
  // All go on.
  for (int stream = 0; stream < 3; ++stream) {
    EXPECT_TRUE(Append(stream, stream).ok());
    EXPECT_TRUE(streams_[stream]->Synchronize().ok());
  }
  EXPECT_EQ(order_, (std::vector<int>{0, 1, 2}));
}

TEST_P(CaptureTest, NoWaitCrossesTheCapturesEdge) {
  const absl::Status not_in_it = absl::FailedPreconditionError(
      "Wait within a capture for an event that was not recorded in it");
  const absl::Status over =
      absl::FailedPreconditionError("Wait for an event recorded in a capture, which is over");
  // Never recorded, recorded before, recorded in another capture that has ended or goes on.
  EXPECT_TRUE(streams_[0]->Record(*events_[1]).ok());
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(streams_[0]->Record(*events_[2]).ok());
  ASSERT_TRUE(End().ok());
  for (const auto& event : events_) {
    ASSERT_TRUE(Begin().ok());
    EXPECT_EQ(streams_[0]->Wait(*event), not_in_it);
    EXPECT_EQ(End(), not_in_it);
  }
  ASSERT_TRUE(streams_[1]->BeginCapture().ok());
  EXPECT_TRUE(streams_[1]->Record(*events_[0]).ok());
  ASSERT_TRUE(Begin().ok());
  EXPECT_EQ(streams_[0]->Wait(*events_[0]), not_in_it);
  EXPECT_EQ(End(), not_in_it);
  EXPECT_TRUE(streams_[1]->EndCapture().ok());
  // From outside: the stream is not the worse for it.
  EXPECT_EQ(streams_[2]->Wait(*events_[0]), over);
  EXPECT_EQ(events_[0]->Synchronize(),
            absl::FailedPreconditionError("Synchronize of an event recorded in a capture"));
  EXPECT_EQ(events_[0]->Done().status(),
            absl::FailedPreconditionError("Done of an event recorded in a capture"));
  EXPECT_TRUE(streams_[2]->Synchronize().ok());
}

TEST_P(CaptureTest, AStreamThatJoinedDoesNotEndTheCaptureNorWaitForTheHost) {
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(Fork(0, 1).ok());
  const absl::Status expected =
      absl::FailedPreconditionError("EndCapture on a stream that joined the capture");
  EXPECT_EQ(streams_[1]->EndCapture().status(), expected);
  EXPECT_TRUE(Fork(1, 0).ok());
  EXPECT_EQ(End(), expected);
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(Fork(0, 1).ok());
  const absl::Status refused = absl::FailedPreconditionError("Synchronize within a capture");
  EXPECT_EQ(streams_[1]->Synchronize(), refused);
  EXPECT_TRUE(Fork(1, 0).ok());
  EXPECT_EQ(End(), refused);
}

}  // namespace
}  // namespace gyre
