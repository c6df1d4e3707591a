// Parameters that train from a step on (trainable_from), by the tools: killed about the step and
// resumed, on several processes, planned, and tested.  The formulas: //tests/training/run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const SyntheticData kData{.samples = 50};
constexpr int64_t kSteps = 60;
const TrainerText kTrainer = {
    .optimizer = "adam {} clip_norm: 1 ema { decay: 0.9 }",
    .learning_rate = "base: 0.002",
    .rest = absl::StrCat("batch: 8 evaluate_every: 7 checkpoint_every: 1000 steps: ", kSteps)};
const std::vector<std::string> kUnfreeze = {"--set=net.layer.conv1.conv2d.weight.trainable_from=40",
                                            "--set=net.layer.conv1.conv2d.bias.trainable_from=40",
                                            "--set=net.layer.conv2.conv2d.weight.trainable_from=21",
                                            "--set=net.layer.conv2.conv2d.bias.trainable_from=20"};

class Phases : public testing::Test {
 protected:
  Phases() { WriteTrainer(folder_ / "", ConvNetText(kData), kTrainer); }

  TrainingFolder folder_{kData};
};

TEST_F(Phases, KilledAboutAStep) {
  const ToolResult result = folder_.Train("straight", kUnfreeze);
  const std::string straight = DigestOf(result);
  EXPECT_THAT(result.out, HasSubstr("parameters train until step 20\n"));
  EXPECT_THAT(result.out, HasSubstr("step 20: conv2.bias train from now on: "));
  EXPECT_THAT(result.out, HasSubstr("step 40: conv1.weight, conv1.bias train from now on: "));
  EXPECT_EQ(folder_.Metrics("straight", "loss").size(), kSteps);
  // The test after step 21 is made again, by averages of conv2.weight that have no update yet.
  folder_.Digest("ended", Joined(kUnfreeze, {"--steps=21"}));
  const ToolResult resumed = folder_.Train("ended", Joined(kUnfreeze, {"--resume=latest"}));
  EXPECT_EQ(DigestOf(resumed), straight);
  EXPECT_THAT(resumed.out, Not(HasSubstr("warning: resumed with")));
  EXPECT_EQ(folder_.MetricLines("ended"), folder_.MetricLines("straight"));
  std::mt19937_64 random(7);
  const std::vector<std::string> often = Joined(kUnfreeze, {"--checkpoint_every=1"});
  for (const int64_t step : {19, 20, 21, 39}) {
    const std::string out = absl::StrCat("killed", step);
    Tool tool("train", folder_.TrainArguments(out, often));
    ASSERT_TRUE(folder_.AwaitCheckpoint(tool, out, step)) << tool.Wait().ToString();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 10000));
    tool.Signal(SIGKILL);
    tool.Wait();
    EXPECT_EQ(folder_.Digest(out, Joined(often, {"--resume=latest"})), straight) << step;
    EXPECT_EQ(folder_.MetricLines(out), folder_.MetricLines("straight")) << step;
  }
}

TEST_F(Phases, OnTwoProcesses) {
  const auto digest = [&](const std::string& out, const std::vector<std::string>& more) {
    return folder_.Digest(out, Joined(kUnfreeze, more), {.ranks = 2});
  };
  const std::string direct = digest("direct", {"--allreduce=direct"});
  EXPECT_EQ(digest("bsp", {"--sync=bsp"}), direct);
  EXPECT_EQ(digest("sharded", {"--allreduce=direct", "--shard_optimizer"}), direct);
  for (const char* allreduce : {"shared", "ring"}) {
    const std::string flag = absl::StrCat("--allreduce=", allreduce), out = allreduce;
    const std::string straight = digest(out, {flag});
    digest(out + "2", {flag, "--steps=20"});
    EXPECT_EQ(digest(out + "2", {"--resume=latest"}), straight) << allreduce;
  }
}

TEST_F(Phases, ArePlanned) {
  const ToolResult text = folder_.Train("plan", Joined(kUnfreeze, {"--plan"}));
  EXPECT_THAT(Unwrapped(text.out),
              ContainsRegex("phases +from step 0: [0-9]+ parameters train; MiB: memory .*"
                            "from step 20: .*from step 21: .*from step 40: "))
      << text.ToString();
  const auto json = nlohmann::json::parse(
      folder_.Train("plan", Joined(kUnfreeze, {"--plan", "--json"})).out, nullptr, false);
  ASSERT_EQ(json["phases"].size(), 4);
  for (int i = 1; i < 4; ++i) {
    const auto &before = json["phases"][i - 1], &phase = json["phases"][i];
    EXPECT_LT(before["parameters"], phase["parameters"]);
    EXPECT_LT(before["optimizer"], phase["optimizer"]);
    EXPECT_LT(before["gradient_bytes"], phase["gradient_bytes"]);
  }
  EXPECT_EQ(json["phases"][3]["parameters"], json["parameters"]);
  // One that starts in a later phase, and one that ends before.
  folder_.Digest("resumed", Joined(kUnfreeze, {"--steps=30"}));
  const ToolResult later =
      folder_.Train("resumed", Joined(kUnfreeze, {"--plan", "--resume=latest"}));
  EXPECT_THAT(later.out, HasSubstr("\nphases         from step 21: ")) << later.ToString();
  const ToolResult brief = folder_.Train("plan", Joined(kUnfreeze, {"--plan", "--steps=40"}));
  EXPECT_THAT(Unwrapped(brief.out),
              HasSubstr("conv1.weight, conv1.bias never train, because trainable_from is not below "
                        "the run's 40 steps"));
}

// Whatever a checkpoint's phase has not begun to train.
TEST_F(Phases, CheckpointsServeOtherTools) {
  folder_.Digest("out", Joined(kUnfreeze, {"--steps=30", "--checkpoint_every=10",
                                           "--set=keep_checkpoints=9"}));
  for (const char* step : {"10", "20", "30"}) {
    const std::string checkpoint = absl::StrCat("out/checkpoints/step_000000", step);
    EXPECT_THAT(folder_.Evaluate(folder_ / checkpoint), HasSubstr("test loss ")) << step;
  }
  // A new run begins from its weights.
  EXPECT_NE(folder_.Digest("tuned", {"--weights=" + folder_ / "out", "--steps=3"}), "");
  const ToolResult refused =
      folder_.Train("refused", {"--set=net.layer.conv1.conv2d.bias.trainable_from=-2"});
  EXPECT_THAT(refused.err, HasSubstr("trainable_from must be >= 0, got -2")) << refused.ToString();
}

}  // namespace
}  // namespace gyre
