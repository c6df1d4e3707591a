// Nets that train in turn (players): a player's steps are those of a net in which the others are
// frozen, with the same bits wherever a run stops, however ranks share the work and memory pages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;
using Weights = std::map<std::string, std::vector<double>>;  // by tensor

const SyntheticData kData{.samples = 30};

// A critic that tells an image from what a generator makes of it, by weights that its two uses
// share.  $MINE and $THEIRS are multipliers of rates, $D and $G weights of losses.
constexpr char kNet[] = R"(
  name: "pair"
  input { name: "image" dims: [12, 12, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" input: "image" flatten {} }
  layer { name: "g_1" input: "flat" dense { outputs: 9 $G } }
  layer { name: "g_tanh" tanh {} }
  layer { name: "g_2" dense { outputs: 144 $G } }
  layer { name: "d_real_1" input: "flat" dense { outputs: 7
    weight { name: "d_1_w" $D_RATE } bias { name: "d_1_b" $D_RATE } } }
  layer { name: "d_real_relu" relu {} }
  layer { name: "d_real_2" dense { outputs: 10
    weight { name: "d_2_w" $D_RATE } bias { name: "d_2_b" $D_RATE } } }
  layer { name: "d_loss_real" input: ["d_real_2", "label"]
          softmax_cross_entropy { loss_weight: $D_LOSS } }
  layer { name: "d_fake_1" input: "g_2" dense { outputs: 7
    weight { name: "d_1_w" $D_RATE } bias { name: "d_1_b" $D_RATE } } }
  layer { name: "d_fake_relu" relu {} }
  layer { name: "d_fake_2" dense { outputs: 10
    weight { name: "d_2_w" $D_RATE } bias { name: "d_2_b" $D_RATE } } }
  layer { name: "d_loss_fake" input: ["d_fake_2", "label"]
          hinge { loss_weight: $D_LOSS } }
  layer { name: "g_loss" input: ["d_fake_2", "label"]
          softmax_cross_entropy { loss_weight: $G_LOSS } })";

std::string Net(bool critic, bool generator) {
  const char kFrozen[] = "learning_rate_multiplier: 0";
  const std::string frozen = absl::StrCat("weight { ", kFrozen, " } bias { ", kFrozen, " }");
  return absl::StrReplaceAll(kNet, {{"$G_LOSS", generator ? "1" : "0"},
                                    {"$G", generator ? "" : frozen},
                                    {"$D_RATE", critic ? "" : kFrozen},
                                    {"$D_LOSS", critic ? "1" : "0"}});
}

constexpr char kPlayers[] = R"(
  players { name: "critic" layers: "d_*" losses: ["d_loss_real", "d_loss_fake"] steps: 2 }
  players { name: "generator" layers: "g_*" losses: "g_loss" } )";
constexpr char kWhole[] = "batch: 30 test_batch: 10 precision: F64 ";  // all samples in each step

class PlayersTest : public testing::Test {
 protected:
  void Write(const std::string& net, const std::string& rest,
             const std::string& optimizer = "sgd {}") {
    WriteTrainer(folder_ / "", net,
                 {.optimizer = optimizer, .learning_rate = "base: 0.05", .rest = rest});
  }

  Weights Values(const std::string& out) {
    const int64_t step = folder_.NewestCheckpoint(out);
    const auto file = *TensorFile::Read(
        folder_ / absl::StrFormat("%s/checkpoints/step_%08d/weights.safetensors", out, step));
    Weights weights;
    for (const NamedTensor& tensor : file.tensors()) {
      const auto* const data = tensor.tensor.as<double>();
      weights[tensor.name] = {data, data + tensor.tensor.elements()};
    }
    return weights;
  }

  static void ExpectNear(const Weights& got, const Weights& expected) {
    for (const auto& [name, values] : expected) {
      ASSERT_TRUE(got.contains(name)) << name;
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(got.at(name)[i], values[i], 1e-12 * (1 + std::abs(values[i])))
            << name << " element " << i;
      }
    }
  }

  std::string Refused(const std::string& players) {
    Write(Net(true, true), absl::StrCat(kWhole, "steps: 3 ", players));
    const ToolResult result = folder_.Train("refused");
    EXPECT_EQ(result.exit_code, 1) << result.ToString();
    return Unwrapped(result.err);
  }

  TrainingFolder folder_{kData};
};

// By runs of a step each, in which the other is frozen.
TEST_F(PlayersTest, StepAsNetsInWhichTheOthersAreFrozen) {
  Write(Net(true, true), absl::StrCat(kWhole, "steps: 6 checkpoint_every: 1", kPlayers));
  folder_.Digest("players");
  Write(Net(true, true), absl::StrCat(kWhole, "steps: 1"));
  folder_.Train("0", {"--set=learning_rate.base=0"});  // the first values
  for (int step = 0; step < 6; ++step) {
    const bool critic = step % 3 < 2;
    Write(Net(critic, !critic), absl::StrCat(kWhole, "steps: 1"));
    folder_.Digest(absl::StrCat(step + 1), {"--weights=" + folder_ / absl::StrCat(step)});
  }
  ExpectNear(Values("players"), Values("6"));
}

// A line has the losses of its player.
TEST_F(PlayersTest, LogTheirOwnLosses) {
  Write(Net(true, true), absl::StrCat(kWhole, "steps: 3 evaluate_every: 3", kPlayers));
  folder_.Digest("out");
  const std::vector<std::string> lines = folder_.MetricLines("out");
  ASSERT_EQ(lines.size(), 4u);
  for (const int critic : {0, 1}) {
    EXPECT_THAT(lines[critic], HasSubstr("\"d_loss_real\""));
    EXPECT_THAT(lines[critic], testing::Not(HasSubstr("g_loss")));
  }
  EXPECT_THAT(lines[2], HasSubstr("\"g_loss\""));
  EXPECT_THAT(lines[2], testing::Not(HasSubstr("d_loss")));
  EXPECT_THAT(lines[3], HasSubstr("test_g_loss"));
  EXPECT_THAT(lines[3], HasSubstr("test_d_loss_real"));
}

// Two nets that know nothing of each other: each is as alone, its own steps counted.
TEST_F(PlayersTest, CountTheirOwnSteps) {
  const auto branch = [](const std::string& name) {
    return absl::StrReplaceAll(R"(
      layer { name: "$_1" input: "flat" dense { outputs: 8 } }
      layer { name: "$_tanh" tanh {} }
      layer { name: "$_2" dense { outputs: 10 } }
      layer { name: "$_loss" input: ["$_2", "label"] softmax_cross_entropy {} })",
                               {{"$", name}});
  };
  const std::string inputs = R"(
    name: "two"
    input { name: "image" dims: [12, 12, 1] }
    input { name: "label" type: LABEL }
    layer { name: "flat" input: "image" flatten {} })";
  for (const std::string optimizer : {"adam {} ema { decay: 0.9 }", "sgd { momentum: 0.9 }"}) {
    const std::string name = optimizer.substr(0, 3);
    Write(inputs + branch("a") + branch("b"), absl::StrCat(kWhole, R"(steps: 12
            players { name: "a" layers: "a_*" losses: "a_loss" }
            players { name: "b" layers: ["b_1", "b_2"] losses: "b_loss" steps: 2 })"),
          optimizer);
    folder_.Digest(name);
    Write(inputs + branch("a"), absl::StrCat(kWhole, "steps: 4"), optimizer);
    folder_.Digest(name + "a");
    Write(inputs + branch("b"), absl::StrCat(kWhole, "steps: 8"), optimizer);
    folder_.Digest(name + "b");
    ExpectNear(Values(name), Values(name + "a"));
    ExpectNear(Values(name), Values(name + "b"));
  }
}

TEST_F(PlayersTest, HaveTheSameBitsHoweverTheyRun) {
  for (const std::string accumulate : {"", "accumulate: 2 "}) {
    Write(Net(true, true),
          absl::StrCat("batch: 7 test_batch: 5 evaluate_every: 4 steps: 11 log_norms_every: 5 ",
                       accumulate, kPlayers),
          "adam {} clip_norm: 0.5 ema { decay: 0.9 }");
    const auto digest = [&](const std::string& out, const std::vector<std::string>& flags) {
      return folder_.Digest(out + accumulate.substr(0, 1), flags);
    };
    const std::string alone = digest("alone", {});
    const std::vector<std::string> ranks = {"--ranks=2", "--allreduce=direct"};
    const std::string direct = digest("direct", ranks);
    EXPECT_EQ(digest("shards", Joined(ranks, {"--shard_optimizer"})), direct);
    const auto least = [&](const std::vector<std::string>& flags) {
      return NumberIn(folder_.Train("refused", Joined(flags, OnSim(1))).err, kLeastDeviceMemory);
    };
    EXPECT_EQ(digest("paged", OnSim(least({}))), alone);
    EXPECT_EQ(digest("paged_ranks", Joined(ranks, OnSim(least(ranks)))), direct);
    for (const int stop : {3, 4, 5}) {
      const std::string out = absl::StrCat("stopped", stop);
      digest(out, {absl::StrCat("--steps=", stop)});
      EXPECT_EQ(digest(out, {"--resume=latest"}), alone) << stop;
    }
  }
}

TEST_F(PlayersTest, AreRefusedWithAReason) {
  const std::string critic = "players { name: \"c\" layers: \"d_*\" losses: \"d_loss_real\" } ";
  const auto generator = [](const std::string& layers, const std::string& losses) {
    return absl::StrCat("players { name: \"g\" layers: ", layers, " losses: ", losses, " } ");
  };
  const std::string good = generator("\"g_*\"", "\"g_loss\"");
  EXPECT_THAT(Refused(critic), HasSubstr("layer \"g_1\": trains, and no player has it"));
  EXPECT_THAT(Refused(critic + generator("\"*\"", "\"g_loss\"")),
              HasSubstr("layer \"d_real_1\": is of players \"c\" and \"g\""));
  EXPECT_THAT(Refused(critic + generator("[\"g_*\", \"h_*\"]", "\"g_loss\"")),
              HasSubstr("player \"g\": layers: \"h_*\" is no layer that trains"));
  EXPECT_THAT(Refused(critic + generator("\"g_*\"", "\"g_2\"")),
              HasSubstr("player \"g\": losses: expected the name of a loss, got \"g_2\""));
  EXPECT_THAT(Refused(critic + good),
              HasSubstr("layer \"d_fake_1\": is of player \"c\", and none of its losses depends"));
  EXPECT_THAT(Refused("players { name: \"c\" layers: [\"d_real_*\", \"g_*\"] losses: \"g_loss\" } "
                      "players { name: \"f\" layers: \"d_fake_*\" losses: \"d_loss_fake\" }"),
              HasSubstr("shares a parameter with layer"));
  EXPECT_THAT(Refused("players { layers: \"d_*\" losses: \"g_loss\" }"),
              HasSubstr("players: missing name"));
  EXPECT_THAT(Refused(absl::StrCat(kPlayers, "loss_scale { dynamic {} }")),
              HasSubstr("give loss_scale.fixed"));
  Write(Net(true, true), absl::StrCat(kWhole, "steps: 3 ", kPlayers));
  const ToolResult served = folder_.Train("served", {"--ranks=2", "--sync=bsp"});
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_THAT(Unwrapped(served.err), HasSubstr("train with sync allreduce"));
}

}  // namespace
}  // namespace gyre
