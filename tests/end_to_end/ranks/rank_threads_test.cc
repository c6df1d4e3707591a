// Ranks that are threads of one process (--ranks) train as mpirun's processes do, bit for bit, with
// one output, and end together, as processes do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/sample_order.h"
#include "engine/data/files/atomic_file.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

// No rank count but 1 divides the batches.
const SyntheticData kData{.samples = 50};
constexpr int64_t kTestSamples = 43;
constexpr char kLength[] =
    "batch: 17 test_batch: 7 steps: 15 evaluate_every: 10 distributed { bucket_bytes: 2000 }";

std::string RanksFlag(int ranks) { return absl::StrCat("--ranks=", ranks); }

class RankThreads : public testing::Test {
 protected:
  RankThreads() {
    WriteTrainer(folder_ / "", ConvNetText(kData),
                 {.optimizer = "sgd { momentum: 0.9 } clip_norm: 0.5", .rest = kLength});
  }
  TrainingFolder folder_{kData, kTestSamples};
};

TEST_F(RankThreads, SameBitsAsProcesses) {
  const std::pair<const char*, int> kDevicesAndRanks[] = {{"--device=cpu", 3}, {"--device=sim", 2}};
  for (const auto& [device, ranks] : kDevicesAndRanks) {
    SCOPED_TRACE(absl::StrCat(device, ", ", ranks, " ranks"));
    const std::string processes = absl::StrCat(device, "processes");
    const std::string threads = absl::StrCat(device, "threads");
    EXPECT_EQ(folder_.Digest(threads, {device, RanksFlag(ranks)}),
              folder_.Digest(processes, {device}, {.ranks = ranks}));
    EXPECT_EQ(folder_.MetricLines(threads), folder_.MetricLines(processes));
    EXPECT_EQ(folder_.Evaluate(folder_ / threads, {device, RanksFlag(ranks)}),
              folder_.Evaluate(folder_ / threads, {device}));
  }
  // One rank is another sum: else equality would prove nothing.
  EXPECT_NE(folder_.Digest("alone"), folder_.Digest("two", {RanksFlag(2)}));
}

// Rank 0 alone speaks, and says how many there are.
TEST_F(RankThreads, OneOutput) {
  const ToolResult result = Succeeded(folder_.Train("out", {RanksFlag(3)}));
  EXPECT_THAT(result.out, HasSubstr(": 3 ranks of 1 thread on cpu, auto allreduce\n"));
  EXPECT_THAT(result.out, HasSubstr("\nallreduce auto: shared\n"));
  EXPECT_EQ(result.out.find("training "), result.out.rfind("training "));
  EXPECT_EQ(result.out.find("weights sha256"), result.out.rfind("weights sha256"));
}

// Names every layer's two passes, the update and what the ranks sum, wait for and read: as many in
// the steps that are replayed, with the same bits as without.
TEST_F(RankThreads, Timeline) {
  for (const std::string device : {"cpu", "sim"}) {
    SCOPED_TRACE(device);
    const std::string path = folder_ / "timeline.json";
    EXPECT_EQ(
        folder_.Digest("t" + device, {"--device=" + device, RanksFlag(2), "--timeline=" + path}),
        folder_.Digest("u" + device, {"--device=" + device, RanksFlag(2)}));
    std::map<std::pair<int, std::string>, std::set<std::string>> names;
    std::map<std::string, int> times;
    for (const nlohmann::json& event : nlohmann::json::parse(*ReadFile(path))) {
      if (event.value("ph", "") != "X") continue;
      names[{event["pid"], event["cat"]}].insert(event["name"]);
      ++times[event["name"]];
    }
    for (const int rank : {0, 1}) {
      const auto of = [&, rank = rank](const char* kind) { return names[{rank, kind}]; };
      EXPECT_THAT(of("compute"), IsSupersetOf({"conv1 forward", "conv1 backward", "fc1 forward",
                                               "fc1 backward", "update"}));
      EXPECT_THAT(of("communication"),
                  Contains(HasSubstr("gradient bucket 0 part 0 (scores.weight, scores.bias)")));
      EXPECT_THAT(of("waiting"), Contains(HasSubstr("step metrics")));
      EXPECT_THAT(of("input"), Contains("the next batch"));
    }
    EXPECT_GE(times["conv1 backward"], 2 * 15);
  }
}

TEST_F(RankThreads, TimelinesOfProcessesAreFilesOfTheirOwn) {
  folder_.Digest("out", {"--timeline=" + (folder_ / "t.json")}, {.ranks = 2});
  for (const int rank : {0, 1}) {
    const auto text = ReadFile(folder_ / absl::StrCat("t.rank", rank, ".json")).value();
    int spans = 0;
    for (const nlohmann::json& event : nlohmann::json::parse(text)) {
      if (event.value("ph", "") != "X") continue;
      ++spans;
      EXPECT_EQ(event["pid"], rank);
    }
    EXPECT_GT(spans, 0);
  }
  const ToolResult result = folder_.Train("out", {"--timeline=none/t.json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("--timeline: none/t.json: No such file"));
}

// A sample that one rank alone reads has an impossible label: that rank's reason ends all of them.
// A thread may be stuck in a sum then, and threads say the reason once.
TEST(Failure, OfOneRankEndsAllWithItsReason) {
  constexpr int64_t kBatch = 8;
  const struct {
    bool threads;
    int ranks, failing;
  } kCases[] = {{true, 2, 0}, {true, 3, 2}, {false, 2, 1}, {false, 3, 0}};
  for (const auto& [threads, ranks, failing] : kCases) {
    const int64_t position = 2 * kBatch + ShareOf(kBatch, failing, ranks).first;
    SyntheticData data = kData;
    const int64_t sample = SampleOrder(data.samples, /*seed=*/1).At(position);
    data.labels = {{sample, 200}};
    const TrainingFolder folder(data);
    WriteTrainer(folder / "", CopiedLabelNetText(data),
                 {.rest = absl::StrCat("batch: ", kBatch, " steps: 1000000")});
    const ToolResult result =
        folder.Train("out", {RanksFlag(threads ? ranks : 1)}, {.ranks = threads ? 1 : ranks});
    EXPECT_FALSE(result.timed_out);
    EXPECT_NE(result.exit_code, 0) << result.ToString();
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("error: rank ", failing, ": ")));
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("sample ", sample, " (")));
    if (threads) {
      EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    }
  }
}

}  // namespace
}  // namespace gyre
