// Training by a parameter server: bsp has the bits of sums by `direct`, whatever the optimizer, the
// device and the number of ranks, and resumes on others; ssp and async learn.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const SyntheticData kData{.samples = 50};
constexpr int64_t kTestSamples = 43;
constexpr char kLength[] =
    "batch: 17 test_batch: 7 steps: 8 evaluate_every: 5 checkpoint_every: 4 ";

class Server : public testing::Test {
 protected:
  void Write(const std::string& optimizer, const std::string& rest = "") {
    WriteTrainer(folder_ / "", ConvNetText(kData),
                 {.optimizer = optimizer,
                  .rest = absl::StrCat(
                      kLength, rest, " distributed { bucket_bytes: 2000 allreduce: \"direct\" }")});
  }
  std::string Digest(const std::string& out, int ranks, std::vector<std::string> more = {}) {
    more.push_back(absl::StrCat("--ranks=", ranks));
    return folder_.Digest(out, more);
  }
  TrainingFolder folder_{kData, kTestSamples};
};

TEST_F(Server, BspHasTheBitsOfDirect) {
  const std::pair<const char*, const char*> kOptimizersAndMore[] = {
      {"sgd { momentum: 0.9 nesterov: true } weight_decay: 0.01", ""},
      {"adam {} ", "accumulate: 2"},
      {"adamw {} weight_decay: 0.1", "loss_scale { fixed: 64 }"}};
  for (const auto& [optimizer, more] : kOptimizersAndMore) {
    SCOPED_TRACE(optimizer);
    Write(optimizer, more);
    for (const int ranks : {1, 2, 3, 5}) {
      const auto out = [&](const char* what) {
        return absl::StrCat(what, std::string(optimizer).substr(0, 5), ranks);
      };
      const std::string whole = Digest(out("whole"), ranks);
      EXPECT_EQ(Digest(out("served"), ranks, {"--sync=bsp"}), whole) << ranks;
      EXPECT_EQ(folder_.MetricLines(out("served")), folder_.MetricLines(out("whole")));
      if (ranks != 3) continue;
      EXPECT_EQ(Digest(out("sim"), ranks, {"--sync=bsp", "--device=sim"}), whole);
    }
  }
}

// The last ranks own more and train on nothing: the sums are those of the others.
TEST_F(Server, RanksThatOnlyServe) {
  Write("adamw {} weight_decay: 0.1", "accumulate: 2");
  for (const int workers : {1, 2, 3}) {
    const std::string whole = Digest(absl::StrCat("whole", workers), workers);
    for (const int servers : {1, 2, 3}) {
      EXPECT_EQ(Digest(absl::StrCat("served", workers, servers), workers + servers,
                       {"--sync=bsp", absl::StrCat("--servers=", servers)}),
                whole)
          << workers << " and " << servers;
    }
  }
  // Their parts of the optimizer's state are files' as others' are.
  Digest("parts", 5, {"--sync=bsp", "--servers=2", "--steps=4"});
  const ToolResult resumed =
      folder_.Train("parts", {"--ranks=4", "--sync=bsp", "--servers=1", "--resume=latest"});
  EXPECT_THAT(resumed.out, HasSubstr(Digest("straight", 3)));
  EXPECT_THAT(resumed.out, Not(HasSubstr("not with the same bits")));
  Digest("async", 3, {"--sync=async", "--servers=1"});
}

// Processes, of which each has its own memory.
TEST_F(Server, RanksOfMpirun) {
  Write("sgd { momentum: 0.9 }");
  const std::string whole = folder_.Digest("whole", {}, {.ranks = 3});
  EXPECT_EQ(folder_.Digest("served", {"--sync=bsp"}, {.ranks = 3}), whole);
  EXPECT_EQ(folder_.Digest("bounded", {"--sync=ssp", "--staleness=1"}, {.ranks = 2}).size(), 64u);
  EXPECT_EQ(folder_.Digest("free", {"--sync=async"}, {.ranks = 2}).size(), 64u);
}

TEST_F(Server, ResumesByAnyModeOnAnyRanks) {
  Write("adam {}");
  const std::string straight = Digest("whole", 3);
  Digest("parts", 3, {"--sync=bsp", "--steps=4"});
  EXPECT_EQ(Digest("parts", 3, {"--sync=bsp", "--resume=latest"}), straight);
  // From sums to a server and back, which is the same.
  Digest("to", 3, {"--steps=4"});
  EXPECT_EQ(Digest("to", 3, {"--sync=bsp", "--resume=latest"}), straight);
  Digest("back", 3, {"--sync=bsp", "--steps=4"});
  EXPECT_EQ(Digest("back", 3, {"--resume=latest"}), straight);
  // On others, and as others come: only that it goes on.
  Digest("fewer", 3, {"--sync=async", "--steps=4"});
  EXPECT_NE(Digest("fewer", 2, {"--sync=ssp", "--staleness=2", "--resume=latest"}), "");
}

// The larger steps of N updates a step are not the same ones, but lead there, too.
TEST_F(Server, StaleOnesLearn) {
  Write("sgd { momentum: 0.5 }");
  const std::vector<std::string> long_enough = {"--steps=60", "--set=evaluate_every=60"};
  Digest("bsp", 3, {"--sync=bsp", "--steps=60", "--set=evaluate_every=60"});
  const double bsp = folder_.Metrics("bsp", "test_loss").back();
  const double first = folder_.Metrics("bsp", "loss").front();
  for (const std::vector<std::string>& mode : std::vector<std::vector<std::string>>{
           {"--sync=ssp"}, {"--sync=ssp", "--staleness=3"}, {"--sync=async"}}) {
    std::vector<std::string> arguments = long_enough;
    arguments.insert(arguments.end(), mode.begin(), mode.end());
    const std::string out = absl::StrCat(mode.front(), mode.back());
    Digest(out, 3, arguments);
    EXPECT_EQ(folder_.Metrics(out, "loss").size(), 60u);
    EXPECT_LT(folder_.Metrics(out, "test_loss").back(), 0.5 * first + 0.5 * bsp) << out;
  }
}

// A rank hears that another is asked to stop long before it is as stale as it may be.
TEST_F(Server, StopsHoweverStale) {
  Write("sgd {}");
  Tool tool("train",
            folder_.TrainArguments(
                "stopped", {"--ranks=2", "--sync=ssp", "--staleness=1000000", "--steps=100000000",
                            "--set=evaluate_every=100000000", "--checkpoint_every=100000000"}));
  while (tool.Running() && !std::filesystem::exists(folder_ / "stopped/metrics.jsonl")) {
    usleep(1000);
  }
  tool.Signal(SIGTERM);
  const ToolResult result = tool.Wait();
  EXPECT_EQ(result.exit_code, 130) << result.ToString();
}

TEST_F(Server, PlanSaysHow) {
  Write("adam {}");
  const std::string plan =
      folder_.Train("plan", {"--plan", "--ranks=3", "--sync=ssp", "--staleness=2"}).out;
  EXPECT_THAT(plan, HasSubstr("(parameter server, ssp 2)"));
  EXPECT_THAT(plan, HasSubstr("the optimizer's state is shared out: "));
}

TEST_F(Server, RefusesWhatItDoesNotDo) {
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& message) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"--ranks=2", "--sync=async"});
    const ToolResult result = folder_.Train("refused", all);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                HasSubstr(absl::StrCat("--set distributed.sync=ASYNC: parameter server, async: ",
                                       message)));
  };
  Write("adam {} clip_norm: 0.5");
  refused({}, "owners update before all gradients are known, as optimizer.clip_norm must");
  Write("adam {}");
  refused({"--set=loss_scale.dynamic.initial=8"},
          "owners update before all gradients are known, as loss_scale.dynamic must");
  refused({"--precision=F16"}, "expected parameters of F32 or F64, got F16");
}

}  // namespace
}  // namespace gyre
