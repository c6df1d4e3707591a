// Work that is run plainly, captured, and replayed does the same each time; actions run in their
// places; a device that cannot capture still works; errors come through and leave nothing open.
#include "engine/training/step/step_graph.h"

#include <gtest/gtest.h>

#include "engine/runtime/device/forwarding_stream.h"

namespace gyre {
namespace {

class StepGraphTest : public testing::TestWithParam<DeviceKind> {
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
  // An action that sees all work before it done.
  absl::Status Act(int value) {
    RETURN_IF_ERROR(stream_->Synchronize());
    order_.push_back(value);
    return absl::OkStatus();
  }
  // What one run does.
  std::vector<int> OrderOf(StepGraph& work) {
    order_.clear();
    EXPECT_TRUE(work.Run().ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return order_;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<int> order_;
};

INSTANTIATE_TEST_SUITE_P(Host, StepGraphTest, testing::Values(DeviceKind::kCpu, DeviceKind::kSim),
                         [](const auto& info) {
                           return std::string(info.param == DeviceKind::kCpu ? "Cpu" : "Sim");
                         });

TEST_P(StepGraphTest, EveryRunIsTheSame) {
  int enqueued = 0;
  StepGraph work(*stream_, [&](const StepGraph::Between& between) {
    ++enqueued;
    RETURN_IF_ERROR(between([this] { return Act(-1); }));
    RETURN_IF_ERROR(Append(1));
    RETURN_IF_ERROR(Append(2));
    RETURN_IF_ERROR(between([this] { return Act(-2); }));
    return Append(3);
  });
  for (int run = 0; run < 5; ++run) {
    EXPECT_EQ(OrderOf(work), (std::vector<int>{-1, 1, 2, -2, 3})) << "run " << run;
    EXPECT_EQ(work.graphs(), run == 0 ? 0u : 3u);
  }
  EXPECT_EQ(enqueued, 2);  // plainly, and for the capture
}

TEST_P(StepGraphTest, WithoutCaptureEachRunIsEnqueued) {
  int enqueued = 0;
  StepGraph work(
      *stream_, [&](const StepGraph::Between&) { return Append(++enqueued); }, /*capture=*/false);
  for (int run = 0; run < 3; ++run) EXPECT_TRUE(work.Run().ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(order_, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(work.graphs(), 0u);
  EXPECT_TRUE(work.refusal().ok());
}

TEST_P(StepGraphTest, AnActionsErrorEndsTheRun) {
  bool fail = false;
  StepGraph work(*stream_, [&](const StepGraph::Between& between) {
    RETURN_IF_ERROR(between([&] { return fail ? absl::DataLossError("bad") : absl::OkStatus(); }));
    return Append(1);
  });
  for (int run = 0; run < 3; ++run) EXPECT_TRUE(work.Run().ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  order_.clear();
  fail = true;
  EXPECT_EQ(work.Run(), absl::DataLossError("bad"));
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE(order_.empty());
}

TEST_P(StepGraphTest, AnErrorWhileCapturingLeavesTheStreamOpen) {
  int enqueued = 0;
  StepGraph work(*stream_, [&](const StepGraph::Between& between) {
    RETURN_IF_ERROR(between([] { return absl::OkStatus(); }));
    return ++enqueued == 2 ? absl::InternalError("launch failed") : Append(1);
  });
  EXPECT_TRUE(work.Run().ok());
  EXPECT_EQ(work.Run(), absl::InternalError("launch failed"));
  EXPECT_TRUE(stream_->Synchronize().ok());  // no capture is active
  EXPECT_EQ(order_, (std::vector<int>{1}));
}

// Work on a stream beside it, forked and joined within a stretch, ends none.
TEST_P(StepGraphTest, WorkMayForkAndJoin) {
  const auto other = std::move(device_->NewStream()).value();
  const auto forks = std::move(device_->NewEvent()).value();
  const auto joins = std::move(device_->NewEvent()).value();
  int beside = 0;
  StepGraph work(*stream_, [&](const StepGraph::Between&) {
    RETURN_IF_ERROR(Append(1));
    RETURN_IF_ERROR(stream_->Record(*forks));
    RETURN_IF_ERROR(other->Wait(*forks));
    RETURN_IF_ERROR(other->Call([&] {
      order_.push_back(++beside);
      return absl::OkStatus();
    }));
    RETURN_IF_ERROR(other->Record(*joins));
    RETURN_IF_ERROR(stream_->Wait(*joins));
    return Append(-1);
  });
  for (int run = 1; run < 5; ++run) {
    EXPECT_EQ(OrderOf(work), (std::vector<int>{1, run, -1})) << "run " << run;
    EXPECT_EQ(work.graphs(), run == 1 ? 0u : 1u);
  }
}

// A stream that takes work down and then says that it cannot: of a second stretch.
class NoCapture final : public ForwardingStream {
 public:
  using ForwardingStream::ForwardingStream;
  absl::StatusOr<std::unique_ptr<Graph>> EndCapture() override {
    auto graph = ForwardingStream::EndCapture();
    return ++ends_ == 1 ? std::move(graph) : absl::UnimplementedError("cannot capture");
  }

 private:
  int ends_ = 0;
};

TEST_P(StepGraphTest, WithoutCaptureItGoesOnPlainly) {
  NoCapture stream(*stream_);
  StepGraph work(stream, [&](const StepGraph::Between& between) {
    RETURN_IF_ERROR(Append(1));
    RETURN_IF_ERROR(between([this] { return Act(-1); }));
    return Append(2);
  });
  for (int run = 0; run < 4; ++run) {
    EXPECT_EQ(OrderOf(work), (std::vector<int>{1, -1, 2}));
    EXPECT_EQ(work.graphs(), 0u);
  }
}

}  // namespace
}  // namespace gyre
