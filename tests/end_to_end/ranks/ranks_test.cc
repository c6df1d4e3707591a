// Theorem: N ranks train as one rank does at the same global batch, within the rounding of sums.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/runtime/machine.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

// No rank count but 1 divides the batch, the test batch, or what is left of the test set: 1 sample,
// less than the ranks.
const SyntheticData kData{.samples = 97};
constexpr int64_t kTestSamples = 43;
constexpr char kSizes[] = "batch: 17 test_batch: 7 evaluate_every: 10";
constexpr int kRankCounts[] = {2, 3, 5};

// The bounds: 5 steps in F32, 50 steps in F64.
constexpr double kF32Bound = 1e-6, kF64Bound = 1e-10;

constexpr const char* kMeasured[] = {"loss", "learning_rate", "test_loss", "test_accuracy"};

struct Case {
  const char* name;
  const char* optimizer;
  const char* allreduce;
  int64_t bucket_bytes;
  // Samples that do not count: ranks then differ in how many of theirs do.
  std::vector<std::string> arguments = {};
};

class Ranks : public testing::TestWithParam<Case> {
 protected:
  Ranks() {
    WriteTrainer(folder_ / "", ConvNetText(kData),
                 {.optimizer = GetParam().optimizer,
                  .rest = absl::StrCat(kSizes, " distributed { allreduce: \"", GetParam().allreduce,
                                       "\" bucket_bytes: ", GetParam().bucket_bytes, " }")});
  }

  // Trains on 1, 2, 3 and 5 ranks; everything measured must agree.
  void ExpectAgreement(const std::vector<std::string>& length, size_t steps, double bound) {
    const std::vector<std::string> arguments = Joined(length, GetParam().arguments);
    folder_.Digest("1", arguments);
    EXPECT_EQ(folder_.Metrics("1", "loss").size(), steps);
    for (int ranks : kRankCounts) {
      const std::string out = absl::StrCat(ranks);
      folder_.Digest(out, arguments, {.ranks = ranks});
      for (const char* key : kMeasured) {
        EXPECT_LE(LargestRelativeDifference(folder_.Metrics(out, key), folder_.Metrics("1", key)),
                  bound)
            << key << " on " << ranks << " ranks";
      }
    }
  }

  TrainingFolder folder_{kData, kTestSamples};
};

INSTANTIATE_TEST_SUITE_P(
    , Ranks,
    testing::Values(Case{"RingClippedIgnoredLabels",
                         "sgd { momentum: 0.9 } weight_decay: 0.001 clip_norm: 0.5",
                         "ring",
                         300,
                         {"--set=net.layer.loss.softmax_cross_entropy.ignore_label=3",
                          "--set=net.layer.accuracy.accuracy.ignore_label=3"}},
                    Case{"AutoAdam", "adam {}", "auto", 4000}),
    [](const auto& info) { return info.param.name; });

TEST_P(Ranks, FirstLossesInF32) { ExpectAgreement({"--steps=5"}, 5, kF32Bound); }

TEST_P(Ranks, FiftyLossesInF64) {
  ExpectAgreement({"--steps=50", "--precision=F64"}, 50, kF64Bound);
  const std::vector<double> losses = folder_.Metrics("1", "loss");
  EXPECT_LT(losses.back(), 0.9 * losses.front());  // it is training that agrees
}

// What ranks sum of layers goes by the order of ranks, as an owner's gradients do, whatever sums
// gradients otherwise.  F64 shows it, for F32 rounds the last bits of those sums away.
TEST(Bsp, SumsStatisticsAsDirect) {
  const TrainingFolder folder(kData, kTestSamples);
  const char kNorm[] = "layer { name: \"norm\" batch_norm { synchronised: true } }\n";
  const char kBefore[] = "layer { name: \"relu1\"";
  WriteTrainer(folder / "",
               absl::StrReplaceAll(ConvNetText(kData), {{kBefore, absl::StrCat(kNorm, kBefore)}}),
               {.rest = absl::StrCat(kSizes, " steps: 10")});
  const auto digest = [&](const std::string& out, const char* allreduce, const char* sync) {
    return folder.Digest(out, {absl::StrCat("--set=distributed.allreduce=", allreduce),
                               absl::StrCat("--sync=", sync), "--ranks=3", "--precision=F64"});
  };
  const std::string direct = digest("direct", "direct", "allreduce");
  EXPECT_NE(digest("ring", "ring", "allreduce"), direct);
  for (const char* allreduce : {"direct", "shared", "auto"}) {
    const std::string out = absl::StrCat("bsp-", allreduce);
    EXPECT_EQ(digest(out, allreduce, "bsp"), direct) << allreduce;
    EXPECT_EQ(folder.MetricLines(out), folder.MetricLines("direct")) << allreduce;
  }
}

// Gradients that travel as halves: almost the same losses, and the same bits again.
TEST(Wire, TrainsAlmostAsF32Does) {
  const TrainingFolder folder(kData, kTestSamples);
  WriteTrainer(folder / "", ConvNetText(kData),
               {.rest = absl::StrCat(kSizes, " distributed { allreduce: \"direct\" }")});
  const auto digest = [&](const std::string& out, const std::string& wire) {
    return folder.Digest(out, {"--steps=10", "--wire=" + wire}, {.ranks = 2});
  };
  const std::string exact = digest("F32", "F32");
  std::string halves;
  for (const std::string wire : {"F16", "BF16"}) {
    const std::string rounded = digest(wire, wire);
    if (wire == "F16") halves = rounded;
    EXPECT_NE(rounded, exact);
    EXPECT_EQ(digest(wire + "again", wire), rounded);
    EXPECT_LE(
        LargestRelativeDifference(folder.Metrics(wire, "loss"), folder.Metrics("F32", "loss")),
        0.05)
        << wire;
  }
  // Where the trainer leaves the choice open it is what can carry them.
  for (const std::string rest : {"", " distributed { allreduce: \"auto\" }"}) {
    WriteTrainer(folder / "", ConvNetText(kData), {.rest = kSizes + rest});
    EXPECT_EQ(digest("open" + std::to_string(rest.size()), "F16"), halves) << rest;
  }
}

TEST(ShardOptimizer, IsSaidAndPlanned) {
  const TrainingFolder folder(kData, kTestSamples);
  WriteTrainer(folder / "", ConvNetText(kData),
               {.optimizer = "adam {} clip_norm: 0.5",
                .rest = absl::StrCat(kSizes, " distributed { allreduce: \"direct\" }")});
  // However much the first line says, it fits a terminal.
  const std::string out = folder.Train("said", {"--steps=1", "--ranks=2", "--shard_optimizer"}).out;
  EXPECT_THAT(out, testing::StartsWith("training conv: 2 ranks of 1 thread on cpu, sharded "));
  EXPECT_LE(out.find('\n'), 80u) << out;
  // The flag overrides the file either way, and only where it is given.
  const std::string of_file = "--set=distributed.shard_optimizer=true",
                    says = "\noptimizer      sharded: each rank holds ";
  const auto plan = [&](const std::vector<std::string>& more) {
    return folder.Train("plan", Joined({"--plan", "--steps=5"}, more), {.ranks = 2}).out;
  };
  EXPECT_THAT(plan({"--shard_optimizer"}), HasSubstr(says));
  EXPECT_THAT(plan({of_file}), HasSubstr(says));
  EXPECT_THAT(plan({of_file, "--noshard_optimizer"}), testing::Not(HasSubstr(says)));
}

TEST(Evaluate, EqualOnAnyNumberOfRanksInBatchesOfAnySize) {
  const TrainingFolder folder(kData, kTestSamples);
  WriteTrainer(folder / "", ConvNetText(kData), {.rest = absl::StrCat(kSizes, " steps: 20")});
  folder.Digest("out", {"--precision=F64"});
  const std::string expected = folder.Evaluate(folder / "out", {"--precision=F64"});
  const std::pair<int, const char*> kRanksAndBatches[] = {{1, "43"},   {1, "1000"}, {2, "7"},
                                                          {2, "1000"}, {3, "43"},   {5, "7"}};
  for (const auto& [ranks, test_batch] : kRanksAndBatches) {
    const std::vector<std::string> arguments = {"--precision=F64",
                                                absl::StrCat("--set=test_batch=", test_batch)};
    EXPECT_EQ(folder.Evaluate(folder / "out", arguments, {.ranks = ranks}), expected)
        << ranks << " ranks, test_batch " << test_batch;
  }
}

// Ranks that mpirun has bound to one socket share its cores.
TEST(Threads, AreARanksShareOfTheCoresThatItIsBoundTo) {
  const TrainingFolder folder(kData, kTestSamples);
  WriteTrainer(folder / "", ConvNetText(kData), {.rest = kSizes});
  const ToolResult result =
      Succeeded(folder.Train("out", {"--threads=0", "--steps=1"},
                             {.ranks = 2, .env = {{"OMPI_MCA_orte_bound_at_launch", "1"}}}));
  EXPECT_THAT(result.out,
              HasSubstr(absl::StrCat("2 ranks of ", std::max(1, Cores() / 2), " thread")));
}

TEST(Failure, ARankThatIsSilentEndsAllAndIsNamed) {
  const SyntheticData data{.samples = 50};
  const TrainingFolder folder(data);
  WriteTrainer(folder / "", MlpNetText(data), {.rest = "batch: 8 steps: 1000000"});
  Tool tool("train", folder.TrainArguments("out", {"--stall_timeout_s=5"}), {.ranks = 3});
  tool.Await([&] { return absl::StrContains(tool.Out(), "training "); });
  const pid_t silent = tool.PidOfRank(1);
  ASSERT_GT(silent, 0);
  kill(silent, SIGSTOP);
  const ToolResult result = tool.Wait();
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.exit_code, 0) << result.ToString();
  EXPECT_THAT(result.err, HasSubstr("error: rank 0: "));
  EXPECT_THAT(result.err, HasSubstr(": rank 1 on host "));
  EXPECT_THAT(result.err, HasSubstr(" has been silent for 5000 ms"));
}

// Without --out, and most likely in one second.  Each rank writes a part of the checkpoints.
TEST(RunsOfOneSecond, HaveAFolderEach) {
  const TrainingFolder folder(kData, kTestSamples);
  WriteTrainer(folder / "", ConvNetText(kData), {.rest = "batch: 8 steps: 3"});
  const auto made_so_far = [] {
    std::error_code none;
    return std::distance(fs::directory_iterator("runs", none), {});
  };
  const auto made_before = made_so_far();
  std::vector<std::unique_ptr<Tool>> runs;
  for (const int ranks : {2, 1, 1, 1, 1, 2}) {
    runs.push_back(
        std::make_unique<Tool>("train",
                               std::vector<std::string>{"--trainer=" + folder / "trainer.textproto",
                                                        "--threads=1", "--shard_optimizer"},
                               ToolOptions{.ranks = ranks}));
  }
  std::set<std::string> folders;
  for (const auto& run : runs) {
    const ToolResult result = run->Wait();
    EXPECT_NE(DigestOf(result), "");
    EXPECT_EQ(result.err, "");  // nor has Open MPI anything to complain of
    constexpr std::string_view kBefore = "output in ";
    const size_t before = result.out.find(kBefore);
    ASSERT_NE(before, std::string::npos) << result.ToString();
    const size_t begin = before + kBefore.size();
    const std::string made = result.out.substr(begin, result.out.find('\n', begin) - begin);
    EXPECT_TRUE(folders.insert(made).second) << made;
    EXPECT_TRUE(fs::exists(made + "/checkpoints/step_00000003/state.pb")) << made;
  }
  EXPECT_EQ(folders.size(), runs.size());
  EXPECT_EQ(made_so_far(), made_before + std::ssize(runs));  // ranks of one run have one
  for (const std::string& made : folders) fs::remove_all(made);
}

}  // namespace
}  // namespace gyre
