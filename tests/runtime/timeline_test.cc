#include "engine/runtime/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "engine/data/files/atomic_file.h"
#include "engine/runtime/device/device.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// What is in the file, but for the empty event that it begins with.
std::vector<json> Events(const std::string& path) {
  const json all = json::parse(*ReadFile(path));
  return {std::next(all.begin()), all.end()};
}

std::vector<std::string> Spans(const std::string& path) {
  std::vector<std::string> names;
  for (const json& event : Events(path)) {
    if (event["ph"] == "X") names.push_back(event["name"]);
  }
  return names;
}

class TimelineTest : public testing::Test {
 protected:
  ~TimelineTest() override {
    static_cast<void>(Timeline::Close());
    Timeline::SetRow({});
  }
  void Open(int64_t most_spans = Timeline::kMostSpans) {
    ASSERT_TRUE(Timeline::Open(path_, most_spans).ok());
    Timeline::SetRow(Timeline::NewRow(/*rank=*/3, "training"));
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "t.json";
};

TEST_F(TimelineTest, SpansStandInTheirThreadsRow) {
  Open();
  { const TimelineSpan span(TimelineKind::kInput, "a \"batch\""); }
  std::thread([] {
    { const TimelineSpan none(TimelineKind::kInput, "a thread without a row"); }
    Timeline::SetRow(Timeline::NewRow(4, "loading"));
    const TimelineSpan span(TimelineKind::kWaiting, "b");
  }).join();
  ASSERT_TRUE(Timeline::Close().ok());
  const std::vector<json> events = Events(path_);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0]["args"]["name"], "rank 3");
  EXPECT_EQ(events[1]["args"]["name"], "training");
  EXPECT_EQ(events[2]["name"], "a \"batch\"");
  EXPECT_EQ(events[2]["cat"], "input");
  EXPECT_EQ(events[2]["pid"], 3);
  EXPECT_EQ(events[2]["tid"], events[1]["tid"]);
  EXPECT_EQ(events[5]["cat"], "waiting");
  EXPECT_EQ(events[5]["pid"], 4);
  EXPECT_EQ(events[5]["tid"], events[4]["tid"]);
  EXPECT_NE(events[5]["tid"], events[2]["tid"]);
  EXPECT_GE(events[2]["dur"], 0);
  EXPECT_GE(events[5]["ts"], events[2]["ts"]);
}

// Also what is captured, each time that it is replayed.
TEST_F(TimelineTest, WorkOfAStreamHasTheLabelThatItWasHandedOverUnder) {
  for (const auto& device : {NewCpuDevice({}), NewSimDevice({})}) {
    Open();
    const auto stream = *device->NewStream();
    const auto nothing = [] { return absl::OkStatus(); };
    ASSERT_TRUE(stream->Call(nothing).ok());  // without a label
    {
      const TimelineLabel outer("conv1");
      ASSERT_TRUE(stream->Call(nothing).ok());
      {
        const TimelineLabel inner("conv1", "backward");
        ASSERT_TRUE(stream->Call(nothing).ok());
      }
      ASSERT_TRUE(stream->BeginCapture().ok());
      ASSERT_TRUE(stream->Call(nothing).ok());
    }
    const auto graph = *stream->EndCapture();
    ASSERT_TRUE(graph->Replay(*stream).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    ASSERT_TRUE(Timeline::Close().ok());
    EXPECT_THAT(Spans(path_), ElementsAre("conv1", "conv1 backward", "conv1"));
    for (const json& event : Events(path_)) EXPECT_EQ(event["pid"], 3);
  }
}

TEST_F(TimelineTest, RecordsNothingWhileItIsClosed) {
  Open();
  const TimelineRow row = Timeline::row();
  ASSERT_TRUE(Timeline::Close().ok());
  const std::string before = *ReadFile(path_);
  const TimelineLabel label("late");
  { const TimelineSpan span(TimelineKind::kInput, "late"); }
  Timeline::Add(row, TimelineKind::kInput, "late", 1, 2);
  EXPECT_EQ(Timeline::NewRow(0, "late").rank, -1);
  EXPECT_EQ(*ReadFile(path_), before);
}

TEST_F(TimelineTest, SaysWhatItLeavesOut) {
  Open(/*most_spans=*/10);
  for (int i = 0; i < 17; ++i) {
    Timeline::Add(Timeline::row(), TimelineKind::kInput, "x", 1, 2);
  }
  ASSERT_TRUE(Timeline::Close().ok());
  EXPECT_EQ(Spans(path_).size(), 10u);
  EXPECT_THAT(*ReadFile(path_), HasSubstr("the 7 spans that followed are left out"));
}

TEST_F(TimelineTest, NamesAFileThatItCannotWrite) {
  const absl::Status status = Timeline::Open(folder_ / "none/t.json");
  EXPECT_THAT(status.message(), HasSubstr("none/t.json: No such file"));
  ASSERT_TRUE(Timeline::Open("/dev/full").ok());
  const absl::Status end = Timeline::Close();
  EXPECT_THAT(end.message(),
              HasSubstr("/dev/full: it could not be written whole; is its disk full?"));
}

}  // namespace
}  // namespace gyre
