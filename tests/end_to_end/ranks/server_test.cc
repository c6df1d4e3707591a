// Training by a parameter server: bsp has the bits of sums by `direct`, whatever the optimizer,
// clipping, the loss's scale, the device and the number of ranks, and resumes on others; ssp and
// async learn.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/end_to_end/training_folder.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
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
  std::string Digest(const std::string& out, int ranks, const std::vector<std::string>& more = {}) {
    return folder_.Digest(out, Joined(more, {absl::StrCat("--ranks=", ranks)}));
  }
  // Of steps: tests are shared out among the ranks that only serve, too.
  std::vector<std::string> StepLines(const std::string& out) {
    std::vector<std::string> lines = folder_.MetricLines(out);
    std::erase_if(lines, [](const auto& line) { return absl::StrContains(line, "test_loss"); });
    return lines;
  }
  // On a simulated device of the least memory that will do.
  std::vector<std::string> OnSim(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--device=sim", "--device_memory=1"});
    const std::string refusal = folder_.Train("least", arguments).err;
    arguments.back() = absl::StrCat("--device_memory=", NumberIn(refusal, kLeastDeviceMemory));
    return arguments;
  }
  TrainingFolder folder_{kData, kTestSamples};
};

// What is varied; modes are in the test.
struct BspCase {
  const char* name;
  const char* optimizer;
  std::string rest = {};
  std::vector<std::string> flags = {};
  bool shards = false;     // --shard_optimizer has the same bits
  bool skips = false;      // some steps, by overflow
  bool sanitized = false;  // under sanitizers, too
};

// Owners know of all gradients before they apply any, to the last bit: the norm by which they clip,
// and whether a step is skipped.  Gradients overflow F32 by a large scale and a large loss.
const std::string kOverflows = " loss_scale { dynamic { initial: 1e28 growth_interval: 2 } }";
const std::vector<std::string> kLargeLoss = {
    "--steps=16", "--set=net.layer.loss.softmax_cross_entropy.loss_weight=1e12"};
// Buckets of several pieces that are measured, of which owners have some each.
constexpr char kLargeLayer[] = "--set=net.layer.fc1.dense.outputs=3000";
// One bucket is of F32.  Owners have the masters, and add in F32 what comes in 16 bits.
constexpr char kMixed[] = "--set=net.layer.fc1.precision=F32";
const std::string kDynamic = "loss_scale { dynamic { initial: 1e7 growth_interval: 2 } }";

const BspCase kBspCases[] = {
    {"Nesterov", "sgd { momentum: 0.9 nesterov: true } weight_decay: 0.01"},
    {.name = "OverBatches", .optimizer = "adam {}", .rest = "accumulate: 2", .sanitized = true},
    {.name = "ClipsAndSkips",
     .optimizer = "sgd {} clip_norm: 0.4",
     .rest = "accumulate: 2" + kOverflows,
     .flags = kLargeLoss,
     .shards = true,
     .skips = true},
    {.name = "Skips",
     .optimizer = "adam {} ema { decay: 0.9 }",
     .rest = kOverflows,
     .flags = kLargeLoss,
     .shards = true,
     .skips = true},
    {.name = "ClipsOverBatches",
     .optimizer = "adamw {} weight_decay: 0.1 clip_norm: 0.3",
     .rest = "accumulate: 2 loss_scale { fixed: 10 }",
     .flags = {"--steps=16"},
     .shards = true,
     .sanitized = true},
    {"ClipsLargeBuckets",
     "adam {} clip_norm: 0.3",
     "",
     {kLargeLayer, "--set=distributed.bucket_bytes=4000000"}},
    // Owners' shards cut large parameters, whose norms scale their changes.
    {.name = "ScalesByNorms",
     .optimizer = "lamb {} weight_decay: 0.01",
     .rest = "accumulate: 2",
     .flags = {kLargeLayer, "--set=distributed.bucket_bytes=4000000"},
     .shards = true,
     .sanitized = true},
    {.name = "ScalesByNormsAndSkips",
     .optimizer = "lamb {} ema { decay: 0.9 }",
     .rest = kOverflows,
     .flags = kLargeLoss,
     .shards = true,
     .skips = true},
    {"ScalesByNormsInBF16", "lamb {}", "", {"--precision=BF16", kMixed}},
    {"F16", "adam {}", "loss_scale { fixed: 128 }", {"--precision=F16", kMixed}},
    {"BF16", "adam {} ema { decay: 0.9 }", "accumulate: 2", {"--precision=BF16", kMixed}},
    {.name = "F16ThatClips",
     .optimizer = "sgd { momentum: 0.9 } clip_norm: 0.5",
     .rest = kDynamic,
     .flags = {"--precision=F16", kMixed},
     .sanitized = true},
    // Each rank's gradients and their sum rounded, as sums are whose ranks send 16 bits.
    {"SentAsF16", "adam {}", "loss_scale { fixed: 16 }", {"--wire=F16"}},
    {.name = "SentAsBF16ThatClips",
     .optimizer = "sgd { momentum: 0.9 } clip_norm: 0.5",
     .rest = kDynamic,
     .flags = {"--wire=BF16", kLargeLayer},
     .sanitized = true}};

class Bsp : public Server, public testing::WithParamInterface<BspCase> {};

INSTANTIATE_TEST_SUITE_P(, Bsp, testing::ValuesIn(kBspCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Bsp, HasTheBitsOfDirect) {
  const BspCase& of = GetParam();
  if (kSanitized && !of.sanitized) GTEST_SKIP();
  Write(of.optimizer, of.rest);
  const auto run = [&](const std::string& out, int ranks, const std::vector<std::string>& mode) {
    return Digest(out, ranks, Joined(mode, of.flags));
  };
  for (const int workers : {1, 3}) {
    if (kSanitized && workers == 1) continue;
    const std::string direct = absl::StrCat("direct", workers), whole = run(direct, workers, {});
    if (of.skips) {
      EXPECT_GT(folder_.Metrics(direct, "skipped_steps").back(), 2);
      EXPECT_LT(folder_.Metrics(direct, "skipped_steps").back(), 12);
    }
    struct Mode {
      int servers;
      std::vector<std::string> flags;
    };
    std::vector<Mode> modes = {{2, {}}};
    if (workers > 1) {
      modes.insert(modes.end(), {{0, {}},
                                 {0, {"--server_memory=host"}},
                                 {1, {"--device=sim"}},
                                 {1, {"--device=sim", "--server_memory=host"}}});
    }
    for (Mode& mode : modes) {
      const std::string out =
          absl::StrCat(workers, "and", mode.servers, absl::StrJoin(mode.flags, ""));
      mode.flags.insert(mode.flags.end(), {"--sync=bsp", absl::StrCat("--servers=", mode.servers)});
      EXPECT_EQ(run(out, workers + mode.servers, mode.flags), whole) << out;
      EXPECT_EQ(StepLines(out), StepLines(direct)) << out;
      EXPECT_LT(LargestRelativeDifference(folder_.Metrics(out, "test_loss"),
                                          folder_.Metrics(direct, "test_loss")),
                1e-6)
          << out;
    }
    if (of.shards && workers > 1) {
      EXPECT_EQ(run("sharded", workers, {"--shard_optimizer"}), whole);
    }
  }
}

// A layer of 2.3 MB: of several blocks.  Of one under sanitizers, whose time it takes.
constexpr const char* kBlocks =
    kSanitized ? "--set=net.layer.fc1.dense.outputs=25" : "--set=net.layer.fc1.dense.outputs=16000";

TEST_F(Server, OneStaleWorkerOf16BitsIsOneRank) {
  for (const std::string type : {"F16", "BF16"}) {
    if (kSanitized && type == "BF16") continue;
    Write("adam {}", "loss_scale { fixed: 128 }");
    const std::string alone = Digest("alone" + type, 1, {"--precision=" + type, kBlocks});
    const std::string wide = Digest("wide" + type, 1, {kBlocks});
    for (const std::string sync : {"--sync=ssp", "--sync=async"}) {
      EXPECT_EQ(Digest(type + sync, 2, {"--precision=" + type, sync, "--servers=1", kBlocks}),
                alone);
      EXPECT_EQ(Digest("wire" + type + sync, 2, {"--wire=" + type, sync, "--servers=1", kBlocks}),
                wide);
    }
  }
}

// Otherwise clipping and skipping are a worker's own: of a single one, as if it were alone.
TEST_F(Server, OneStaleWorkerClipsAndSkipsAsOneRank) {
  const std::vector<std::string> kSteps = {
      "--steps=16", "--set=net.layer.loss.softmax_cross_entropy.loss_weight=1e12", kBlocks};
  for (const std::string optimizer :
       {"adam {} clip_norm: 1e10", "sgd { momentum: 0.9 } clip_norm: 2"}) {
    Write(optimizer, "accumulate: 2 loss_scale { dynamic { initial: 6.338253001141147e+29 } }");
    const std::string name = optimizer.substr(0, 4);
    const std::string alone = Digest("alone" + name, 1, kSteps);
    EXPECT_GT(folder_.Metrics("alone" + name, "skipped_steps").back(), 2);
    for (const std::string sync : {"ssp", "async"}) {
      for (const int servers : {1, 2}) {
        if (kSanitized && servers == 1) continue;
        const std::string out = absl::StrCat(sync, name, servers);
        EXPECT_EQ(Digest(out, 1 + servers,
                         Joined(kSteps, {"--sync=" + sync, absl::StrCat("--servers=", servers)})),
                  alone)
            << out;
        EXPECT_EQ(StepLines(out), StepLines("alone" + name));
      }
    }
  }
}

// Their parts of the optimizer's state are files as others' are.
TEST_F(Server, RanksThatOnlyServeSaveTheirParts) {
  Write("adamw {} weight_decay: 0.1", "accumulate: 2");
  Digest("parts", 5, {"--sync=bsp", "--servers=2", "--steps=4"});
  const ToolResult resumed =
      folder_.Train("parts", {"--ranks=4", "--sync=bsp", "--servers=1", "--resume=latest"});
  EXPECT_THAT(resumed.out, HasSubstr(Digest("straight", 3)));
  EXPECT_THAT(resumed.out, Not(HasSubstr("not with the same bits")));
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
  std::filesystem::copy(folder_ / "parts", folder_ / "back",
                        std::filesystem::copy_options::recursive);
  EXPECT_EQ(Digest("parts", 3, {"--sync=bsp", "--resume=latest"}), straight);
  Digest("host", 3, {"--sync=bsp", "--server_memory=host", "--device=sim", "--steps=4"});
  EXPECT_EQ(Digest("host", 3, {"--sync=bsp", "--resume=latest"}), straight);
  // From sums to a server and back, which is the same.
  Digest("to", 3, {"--steps=4"});
  EXPECT_EQ(Digest("to", 3, {"--sync=bsp", "--resume=latest"}), straight);
  EXPECT_EQ(Digest("back", 3, {"--resume=latest"}), straight);
  // On others, and as others come: only that it goes on.
  Digest("fewer", 3, {"--sync=async", "--steps=4"});
  EXPECT_NE(Digest("fewer", 2, {"--sync=ssp", "--staleness=2", "--resume=latest"}), "");
}

// The larger steps of N updates a step are not the same ones, but lead there, too.
TEST_F(Server, StaleOnesLearn) {
  Write("sgd { momentum: 0.5 } clip_norm: 20", "loss_scale { dynamic {} }");
  const std::vector<std::string> long_enough = {"--steps=60", "--set=evaluate_every=60"};
  Digest("bsp", 3, Joined(long_enough, {"--sync=bsp"}));
  const double bsp = folder_.Metrics("bsp", "test_loss").back();
  const double first = folder_.Metrics("bsp", "loss").front();
  for (const std::vector<std::string>& mode :
       std::vector<std::vector<std::string>>{{"--sync=ssp", "--staleness=3"},
                                             {"--sync=async"},
                                             OnSim({"--sync=async", "--ranks=3", "--wire=BF16"}),
                                             {"--sync=async", "--server_memory=host"}}) {
    if (kSanitized && mode.size() < 3) continue;
    const std::string out = absl::StrCat(mode.front(), mode.back());
    Digest(out, 3, Joined(long_enough, mode));
    EXPECT_EQ(folder_.Metrics(out, "loss").size(), 60u);
    EXPECT_LT(folder_.Metrics(out, "test_loss").back(), 0.5 * first + 0.5 * bsp) << out;
  }
}

// A worker's update moves by its part of the rate: of the first step, all together almost as one.
TEST_F(Server, StaleUpdatesOfAStepAddUpToIt) {
  Write("sgd {}");
  const auto loss = [&](const std::string& mode, const std::string& rate) {
    Digest(mode + rate, 3,
           {mode, "--steps=1", "--set=evaluate_every=1", "--set=learning_rate.base=" + rate});
    return folder_.Metrics(mode + rate, "test_loss").back();
  };
  const double before = loss("--sync=bsp", "0"), change = loss("--sync=bsp", "1e-2") - before;
  for (const std::string mode : {"--sync=ssp", "--sync=async"}) {
    EXPECT_NEAR(loss(mode, "1e-2") - before, change, 0.2 * std::abs(change)) << mode;
  }
}

// All ranks save, and stop, after the same step: those that only serve, too, and those that are
// ahead of others, long before these are as stale as they may be.  A run goes on from either.
TEST_F(Server, SavesAndStopsWhenAsked) {
  struct Mode {
    const char* name;
    std::vector<std::string> arguments;
    bool exact = false;
  };
  const std::vector<Mode> modes = {
      {"allreduce", {"--ranks=2"}, true},
      {"accumulated", {"--ranks=2", "--set=accumulate=2"}, true},
      {"bounded", {"--ranks=3", "--sync=ssp", "--staleness=3"}},
      {"stale", {"--ranks=2", "--sync=ssp", "--staleness=1000000"}},
      {"served", {"--ranks=3", "--sync=bsp", "--servers=1"}, true},
      {"served_two", {"--ranks=3", "--sync=bsp", "--servers=1", "--set=accumulate=2"}, true},
      {"served_ssp", {"--ranks=3", "--sync=ssp", "--staleness=1", "--servers=1"}},
      {"served_async", {"--ranks=3", "--sync=async", "--servers=1"}}};
  Write("sgd { momentum: 0.9 }");
  for (const Mode& mode : modes) {
    if (kSanitized && mode.arguments.size() < 4) continue;
    SCOPED_TRACE(mode.name);
    const std::string out = mode.name;
    const auto until = [&](int64_t steps, const std::string& more = "--stall_timeout_s=20") {
      return Joined({absl::StrCat("--steps=", steps), "--set=evaluate_every=100000000",
                     "--checkpoint_every=100000000", more},
                    mode.arguments);
    };
    Tool tool("train", folder_.TrainArguments(out, until(100'000'000)));
    folder_.AwaitMetrics(tool, out);
    tool.Signal(SIGUSR1);
    folder_.AwaitCheckpoint(tool, out, 1);
    const int64_t saved = folder_.NewestCheckpoint(out);
    tool.Signal(SIGTERM);
    const ToolResult result = tool.Wait();
    EXPECT_EQ(result.exit_code, 130) << result.ToString();
    if (result.exit_code != 130) continue;
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("checkpoint of step ", saved, " written")));
    const int64_t stopped = folder_.NewestCheckpoint(out);
    EXPECT_GT(stopped, saved);
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("stopped after step ", stopped, ";")));
    const std::string whole =
        mode.exact ? folder_.Digest(out + "_straight", until(stopped + 9)) : "";
    const std::string from =
        absl::StrFormat("--resume=%s/checkpoints/step_%08d", folder_ / out, saved);
    const std::string of_saved = folder_.Digest(out + "_saved", until(stopped + 9, from));
    const std::string of_stopped = folder_.Digest(out, until(stopped + 9, "--resume=latest"));
    EXPECT_EQ(folder_.Metrics(out, "loss").size(), static_cast<size_t>(stopped + 9));
    if (!mode.exact) continue;
    EXPECT_EQ(of_saved, whole);
    EXPECT_EQ(of_stopped, whole);
    EXPECT_EQ(folder_.MetricLines(out), folder_.MetricLines(out + "_straight"));
  }
}

TEST_F(Server, PlanSaysHow) {
  Write("adam {}");
  const auto plan = [&](const std::vector<std::string>& more) {
    return folder_.Train("plan", Joined(more, {"--plan"})).out;
  };
  EXPECT_THAT(plan({"--ranks=3", "--sync=ssp", "--staleness=2"}),
              AllOf(HasSubstr("MiB a step from each rank, parameter server, ssp 2\n"),
                    HasSubstr("\noptimizer      sharded: each rank holds ")));
  for (const char* const sync : {"--sync=allreduce", "--sync=bsp"}) {
    EXPECT_THAT(plan({sync}), Not(HasSubstr("\ncommunication")));
  }
  const auto how = [&](const std::string& flag) {
    return plan({"--ranks=3", "--sync=bsp", "--json", flag});
  };
  EXPECT_THAT(how("--servers=1"),
              HasSubstr("\"how\":\"parameter server, bsp, 1 rank only serves\""));
  EXPECT_THAT(how("--server_memory=host"),
              HasSubstr("\"how\":\"parameter server, bsp, in host memory\""));
  const std::string narrow = how("--wire=F16");
  std::smatch sent;
  ASSERT_TRUE(std::regex_search(
      narrow, sent,
      std::regex("\"sent_bytes\":([0-9.]+),\"how\":\"parameter server, bsp, as F16\"")))
      << narrow;
  EXPECT_THAT(how("--wire=F32"), Not(HasSubstr(sent[0].str())));
  // Among all precisions, too.
  EXPECT_THAT(narrow, ContainsRegex(absl::StrCat("\"F32\":[^}]*\"sent\":", sent[1].str(), "}")));
}

}  // namespace
}  // namespace gyre
