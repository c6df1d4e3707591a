// Captured work on cpu and sim: written down, not run; replayed any number of times, in order with
// what is around it; refused where a GPU would refuse it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/runtime/device/buffer.h"

namespace gyre {
namespace {

class CaptureTest : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    device_ = GetParam() == DeviceKind::kCpu ? NewCpuDevice({}) : NewSimDevice({.delay_seed = 1});
    stream_ = std::move(device_->NewStream()).value();
  }

  absl::Status Append(int value) {
    return stream_->Call([this, value] {
      order_.push_back(value);
      return absl::OkStatus();
    });
  }
  std::vector<int> Order() {
    EXPECT_TRUE(stream_->Synchronize().ok());
    return order_;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<int> order_;
};

INSTANTIATE_TEST_SUITE_P(Host, CaptureTest, testing::Values(DeviceKind::kCpu, DeviceKind::kSim),
                         [](const auto& info) {
                           return std::string(info.param == DeviceKind::kCpu ? "Cpu" : "Sim");
                         });

TEST_P(CaptureTest, RunsWhenReplayedAndInOrder) {
  EXPECT_TRUE(Append(1).ok());
  ASSERT_TRUE(stream_->BeginCapture().ok());
  EXPECT_TRUE(Append(2).ok());
  EXPECT_TRUE(Append(3).ok());
  const auto graph = stream_->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Order(), (std::vector<int>{1}));
  EXPECT_TRUE((*graph)->Replay(*stream_).ok());
  EXPECT_TRUE(Append(4).ok());
  EXPECT_TRUE((*graph)->Replay(*stream_).ok());
  EXPECT_EQ(Order(), (std::vector<int>{1, 2, 3, 4, 2, 3}));
}

TEST_P(CaptureTest, CopiesReadWhatIsThereAtTheReplay) {
  const Buffer from = *Buffer::Allocate(*device_, MemoryKind::kPinnedHost, sizeof(int));
  const Buffer to = *Buffer::Allocate(*device_, MemoryKind::kPinnedHost, sizeof(int));
  ASSERT_TRUE(stream_->BeginCapture().ok());
  EXPECT_TRUE(stream_->Copy(to.data(), from.data(), sizeof(int)).ok());
  const auto graph = stream_->EndCapture();
  ASSERT_TRUE(graph.ok());
  for (int value : {5, 7}) {
    *reinterpret_cast<int*>(from.data()) = value;
    EXPECT_TRUE((*graph)->Replay(*stream_).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    EXPECT_EQ(*reinterpret_cast<int*>(to.data()), value);
  }
}

TEST_P(CaptureTest, AnEmptyCaptureIsAnEmptyGraph) {
  ASSERT_TRUE(stream_->BeginCapture().ok());
  const auto graph = stream_->EndCapture();
  ASSERT_TRUE(graph.ok());
  EXPECT_TRUE((*graph)->Replay(*stream_).ok());
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_P(CaptureTest, AGraphRunsOnAnotherStreamToo) {
  const Buffer memory = *Buffer::Allocate(*device_, MemoryKind::kPinnedHost, 2 * sizeof(int));
  auto* const values = reinterpret_cast<int*>(memory.data());
  values[0] = 5;
  ASSERT_TRUE(stream_->BeginCapture().ok());
  EXPECT_TRUE(Append(1).ok());
  EXPECT_TRUE(stream_->Copy(values + 1, values, sizeof(int)).ok());
  const auto graph = stream_->EndCapture();
  stream_ = nullptr;  // a graph needs its device, not the stream that was captured
  const auto other = std::move(device_->NewStream()).value();
  EXPECT_TRUE((*graph)->Replay(*other).ok());
  EXPECT_TRUE(other->Synchronize().ok());
  EXPECT_EQ(order_, (std::vector<int>{1}));
  EXPECT_EQ(values[1], 5);
}

TEST_P(CaptureTest, ErrorsOfReplayedWorkStay) {
  ASSERT_TRUE(stream_->BeginCapture().ok());
  EXPECT_TRUE(stream_->Call([] { return absl::DataLossError("bad"); }).ok());
  EXPECT_TRUE(Append(1).ok());
  const auto graph = stream_->EndCapture();
  ASSERT_TRUE(graph.ok());
  (void)(*graph)->Replay(*stream_);
  EXPECT_EQ(stream_->Synchronize(), absl::DataLossError("bad"));
  EXPECT_TRUE(order_.empty());
}

TEST_P(CaptureTest, WaitingForTheHostIsRefusedAndSpoilsTheCapture) {
  const std::pair<const char*, std::function<absl::Status()>> calls[] = {
      {"Synchronize", [&] { return stream_->Synchronize(); }},
      {"BeginCapture", [&] { return stream_->BeginCapture(); }}};
  for (const auto& [name, call] : calls) {
    ASSERT_TRUE(stream_->BeginCapture().ok());
    const absl::Status expected =
        absl::FailedPreconditionError(std::string(name) + " within a capture");
    EXPECT_EQ(call(), expected);
    EXPECT_TRUE(Append(1).ok());
    EXPECT_EQ(stream_->EndCapture().status(), expected);
  }
  EXPECT_EQ(Order(), (std::vector<int>{}));  // and the stream goes on
  EXPECT_TRUE(Append(2).ok());
  EXPECT_EQ(Order(), (std::vector<int>{2}));
}

TEST_P(CaptureTest, EndWithoutBegin) {
  EXPECT_EQ(stream_->EndCapture().status(),
            absl::FailedPreconditionError("EndCapture without BeginCapture"));
}

}  // namespace
}  // namespace gyre
