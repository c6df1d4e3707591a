// Gradients that are added over batches make the step of a larger batch, for every loss.  Ranks
// that share out the optimizer train what `direct` does, to the bit.  That N ranks add up to one:
// net_test.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/data/tensors/tensor_file.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/model/weights.h"
#include "tests/data/temp_folder.h"
#include "tests/training/run/run_on_threads.h"

namespace gyre {
namespace {

// Sums of some hundred terms in another order, over 50 steps.
constexpr double kBound = 1e-10;

constexpr char kInputs[] = R"(
  name: "t"
  input { name: "image" dims: [5, 4, 2] }
  input { name: "tokens" dims: [5] type: LABEL }
  input { name: "label" type: LABEL }
  input { name: "flags" dims: [5] type: LABEL }
  input { name: "weight" })";

constexpr char kNormNet[] = R"(
  layer { name: "conv" conv2d { filters: 6 kernel: 3 use_bias: false } }
  layer { name: "norm1" batch_norm { synchronised: true } }
  layer { name: "relu" relu {} }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 7 use_bias: false } }
  layer { name: "norm2" batch_norm { synchronised: true momentum: 0.5 } }
  layer { name: "tanh" tanh {} }
  layer { name: "out" dense { outputs: 4 } }
  layer { name: "loss" input: ["out", "label"] softmax_cross_entropy { ignore_label: 3 } })";

// Each token from those before it, by scores of the table's own rows.
constexpr char kTiedNet[] = R"(
  layer { name: "in" input: "tokens" slice { axis: 1 end: -1 } }
  layer { name: "next" input: "tokens" slice { axis: 1 begin: 1 } }
  layer { name: "rows" input: "in" embedding { vocabulary: 9 width: 6 weight { name: "table" } } }
  layer { name: "places" positional_embedding { length: 4 } }
  layer { name: "look" input: ["places", "places", "places"] attention { heads: 2 causal: true } }
  layer { name: "sum" input: ["look", "places"] add {} }
  layer { name: "norm" layer_norm {} }
  layer { name: "out" dense { outputs: 9 weight { name: "table" } } }
  layer { name: "loss" input: ["out", "next"] softmax_cross_entropy { ignore_label: 3 } })";

// Images, tokens, labels and weights by chance.
std::unique_ptr<Dataset> Samples() {
  auto samples = std::make_unique<SamplesInMemory>(23);
  std::mt19937 random(5);
  const auto below = [&](int end) { return static_cast<int>(random() % end); };
  samples->Add<double>("image", {5, 4, 2},
                       [&](int64_t) { return std::normal_distribution<double>()(random); });
  samples->Add<int32_t>("tokens", {5}, [&](int64_t) { return below(9); });
  samples->Add<int32_t>("label", {}, [&](int64_t) { return below(4); });
  samples->Add<int32_t>("flags", {5}, [&](int64_t) { return std::min(2, below(4)); });
  samples->Add<double>("weight", {}, [&](int64_t) { return std::max(0.0, below(8) / 4.0 - 0.5); });
  return samples;
}

constexpr char kMomentum[] = "sgd { momentum: 0.875 } weight_decay: 0.001";

// Trains on ranks as threads, in a folder `out`, or goes on with what it holds.  Each one's digest.
std::vector<std::string> Train(const std::string& out, const std::string& layers, int ranks,
                               const std::vector<std::string>& overrides = {},
                               const std::string& optimizer = kMomentum,
                               const std::vector<int>& hosts = {}) {
  const auto trainer = *ParseTrainerText(absl::StrCat(R"(
      net: "net" batch: 7 steps: 50 checkpoint_every: 25 precision: F64
      optimizer { )",
                                                      optimizer, R"( } learning_rate { base: 0.05 }
      data { train { idx { images: "i" labels: "l" } } })"),
                                         "trainer", overrides);
  const auto net = ParseNetText(absl::StrCat(kInputs, layers), "net").value();
  TrainingOptions options;
  options.out = out;
  options.resume = std::filesystem::exists(out) ? "latest" : "";
  options.net_text = net.message->DebugString();
  std::vector<std::string> digests;
  for (const auto& digest : TrainOnThreads({trainer, net, Samples, options, ranks, hosts})) {
    EXPECT_TRUE(digest.ok()) << digest.status();
    digests.push_back(digest.value_or(""));
  }
  return digests;
}

// After half of the steps, 25, or all.
TensorValues WeightsOf(const std::string& out, int step) {
  return ValuesOf(*TensorFile::Read(StepFolder(out, step) + "/weights.safetensors"));
}

struct Slots {
  std::map<std::string, std::string> bytes;  // by tensor
  std::vector<size_t> of_file;
};

// What a checkpoint has of the optimizer, in `parts` files.
Slots SlotsOf(const std::string& out, int step, int parts) {
  Slots slots;
  for (int part = 0; part < parts; ++part) {
    const auto file = *TensorFile::Read(
        absl::StrCat(StepFolder(out, step), "/", ShardName(kOptimizerFile, part, parts)));
    slots.of_file.push_back(0);
    for (const auto& [name, tensor] : file.tensors()) {
      const std::string bytes(static_cast<const char*>(tensor.data), tensor.bytes());
      slots.of_file.back() += bytes.size();
      EXPECT_TRUE(slots.bytes.emplace(name, bytes).second) << name;
    }
  }
  return slots;
}

// The largest difference of two values, relative to their tensor's root mean square.
double Difference(const TensorValues& a, const TensorValues& b) {
  double largest = 0;
  for (const auto& [name, values] : a) {
    double squares = 0, difference = 0;
    const std::vector<double>& others = b.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      squares += values[i] * values[i];
      difference = std::max(difference, std::abs(values[i] - others[i]));
    }
    largest = std::max(largest, difference / std::sqrt(squares / values.size()));
  }
  return largest;
}

// Whatever part of a batch's targets a loss counts, several batches make the step of one as large.
TEST(Accumulate, MakesTheStepOfTheLargerBatch) {
  constexpr char kScores[] = R"(
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 5 } }
    layer { name: "score" reshape { dims: [5, 1] } }
    layer { name: "loss" input: ["score", "flags"] )";
  constexpr char kTimes[] = R"(
    layer { name: "flat" flatten {} }
    layer { name: "left" slice { axis: 1 end: 5 } }
    layer { name: "fc" input: "flat" dense { outputs: 5 } }
    layer { name: "loss" input: ["fc", "left"] time_to_event { horizon: 1 offset: 0.1 } })";
  // Their counts are unlike, but of one ratio in all batches.
  constexpr char kWeighed[] = R"(
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 4 } }
    layer { name: "left" input: "flat" slice { axis: 1 end: 4 } }
    layer { name: "other" input: ["fc", "left", "weight"] mean_squared_error { loss_weight: 0.5 } }
    layer { name: "hits" input: ["fc", "label", "weight"] accuracy {} }
    layer { name: "loss" input: ["fc", "label", "weight"] softmax_cross_entropy {} })";
  constexpr char kByClass[] = R"(
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 4 } }
    layer { name: "loss" input: ["fc", "label", "weight"] softmax_cross_entropy {
      class_weight: [0.5, 1, 0, 3] label_smoothing: 0.1 } })";
  const struct {
    std::string layers;
    std::vector<std::string> overrides = {};
  } cases[] = {{kTiedNet, {"optimizer.clip_norm=0.5"}},
               {kTiedNet, {"distributed.sync=BSP"}},
               {kTiedNet, {"distributed.allreduce=direct", "distributed.shard_optimizer=true"}},
               {kTiedNet, {"loss_scale.dynamic.initial=1024"}},
               {absl::StrCat(kScores, "binary_cross_entropy { ignore_label: 2 } }")},
               {absl::StrCat(kScores, "binary_hinge { ignore_label: 2 } }")},
               {absl::StrCat(kScores, "max_hinge { ignore_label: 2 } }")},
               {kTimes},
               {kWeighed},
               {kByClass}};
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.layers, absl::StrJoin(c.overrides, " ")));
    const TempFolder folder;
    const auto train = [&](const std::string& out, int ranks, int batch) {
      std::vector<std::string> overrides = c.overrides;
      for (const std::string& more : {std::string("steps=6"), absl::StrCat("batch=", batch),
                                      absl::StrCat("accumulate=", 12 / batch)}) {
        overrides.push_back(more);
      }
      Train(folder / out, c.layers, ranks, overrides);
    };
    train("whole", 1, 12);
    const TensorValues whole = WeightsOf(folder / "whole", 6);
    const auto losses = NumbersOf(folder / "whole", {"loss"});
    ASSERT_EQ(losses.size(), 6);
    for (const auto& [ranks, batch] : {std::pair(1, 6), {1, 1}, {2, 3}}) {
      const std::string out = absl::StrCat(ranks, "x", batch);
      train(out, ranks, batch);
      EXPECT_LT(Difference(WeightsOf(folder / out, 6), whole), kBound) << out;
      const auto others = NumbersOf(folder / out, {"loss"});
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(others.at(i)[0], losses[i][0], 1e-9) << out;
    }
  }
}

std::vector<std::string> With(std::vector<std::string> overrides, const std::string& allreduce,
                              bool shard) {
  overrides.push_back("distributed.allreduce=" + allreduce);
  if (shard) overrides.push_back("distributed.shard_optimizer=true");
  return overrides;
}

// Bits of weights and of what a checkpoint has of the optimizer, whose order of additions is that
// of the halves.
TEST(ShardOptimizer, TrainsWhatDirectTrains) {
  const std::string frozen =
      absl::StrReplaceAll(kNormNet, {{"use_bias: false } }\n  layer { name: \"norm1",
                                      "use_bias: false weight { learning_rate_multiplier: 0 } } }"
                                      "\n  layer { name: \"norm1"}});
  ASSERT_NE(frozen, kNormNet);
  const struct {
    std::string layers, optimizer;
    std::vector<std::string> overrides;
    const char* halves;
  } cases[] = {{kTiedNet, "sgd {}", {"distributed.bucket_bytes=300"}, "shared"},
               {kNormNet,
                "sgd { momentum: 0.9 } clip_norm: 0.1 ema { decay: 0.9 }",
                {"distributed.bucket_bytes=300"},
                "ring"},
               {kTiedNet,
                "sgd { momentum: 0.9 nesterov: true } weight_decay: 0.01",
                {"accumulate=2"},
                "auto"},
               {kTiedNet, "adam {} clip_norm: 0.1", {"distributed.bucket_bytes=600"}, "direct"},
               {frozen, "adamw {} weight_decay: 0.1 ema { decay: 0.9 }", {}, "direct"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.optimizer);
    // The ring adds in an order of its own.
    const std::string whole = c.halves == std::string("ring") ? "ring" : "direct";
    std::vector<std::string> overrides = c.overrides;
    overrides.push_back("steps=3");
    for (const int ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
      const TempFolder folder;
      const auto digests =
          Train(folder / "whole", c.layers, ranks, With(overrides, whole, false), c.optimizer);
      EXPECT_EQ(
          Train(folder / "parts", c.layers, ranks, With(overrides, c.halves, true), c.optimizer),
          digests);
      // Where they are on several hosts each has parameters of its own.
      if (ranks == 3 && c.halves != std::string("shared") && whole == "direct") {
        EXPECT_EQ(Train(folder / "hosts", c.layers, ranks, With(overrides, c.halves, true),
                        c.optimizer, {0, 1, 0}),
                  digests);
      }
      EXPECT_EQ(SlotsOf(folder / "parts", 3, ranks).bytes, SlotsOf(folder / "whole", 3, 1).bytes);
    }
  }
}

// In files of checkpoints, on any ranks and in any mode, whether the run went on or not.
TEST(Average, FollowsTheFormulaForTwentySteps) {
  constexpr double kDecay = 0.9;
  constexpr int kSteps = 20;
  const std::string direct, sharded = "distributed.shard_optimizer=true",
                            served = "distributed.sync=BSP";
  for (const auto& [ranks, mode] :
       {std::pair(1, direct), {2, direct}, {2, sharded}, {3, direct}, {3, served}}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks ", mode));
    const TempFolder folder;
    const auto train = [&](const std::string& out, const std::string& steps, int every) {
      std::vector<std::string> overrides = {steps, absl::StrCat("checkpoint_every=", every),
                                            "keep_checkpoints=20"};
      if (!mode.empty()) overrides.push_back(mode);
      if (mode != served) overrides.push_back("distributed.allreduce=direct");
      return Train(folder / out, kNormNet, ranks, overrides,
                   absl::StrCat("adam {} ema { decay: ", kDecay, " }"));
    };
    const auto digests = train("straight", "steps=20", 1);
    TensorValues expected = WeightsOf(folder / "straight", 1);
    for (int step = 2; step <= kSteps; ++step) {
      for (const auto& [name, values] : WeightsOf(folder / "straight", step)) {
        for (size_t i = 0; i < values.size(); ++i) {
          double& average = expected[name][i];
          average = kDecay * average + (1 - kDecay) * values[i];
        }
      }
    }
    const TensorValues last = WeightsOf(folder / "straight", kSteps);
    // Of buffers there is none.
    for (auto& [name, values] : expected) {
      if (absl::StrContains(name, "running")) values = last.at(name);
    }
    const auto read = [&](const std::string& out, WeightsKind kind) {
      const auto weights = ReadWeights(folder / out, "", kind);
      EXPECT_TRUE(weights.ok()) << weights.status();
      EXPECT_EQ(weights.value().averages, kind == WeightsKind::kAverages);
      return ValuesOf(weights->tensors);
    };
    EXPECT_LT(Difference(read("straight", WeightsKind::kAverages), expected), 1e-12);
    EXPECT_EQ(read("straight", WeightsKind::kLast), last);
    EXPECT_GT(Difference(expected, last), 1e-3);

    train("parted", "steps=7", 100);
    EXPECT_EQ(train("parted", "steps=20", 100), digests);
    EXPECT_EQ(read("parted", WeightsKind::kAverages), read("straight", WeightsKind::kAverages));
    // Rank 0's file has them all, which is all that another host's folder may have.
    if (!mode.empty()) {
      std::filesystem::remove(absl::StrCat(StepFolder(folder / "parted", kSteps), "/",
                                           ShardName(kOptimizerFile, ranks - 1, ranks)));
      EXPECT_EQ(read("parted", WeightsKind::kAverages), read("straight", WeightsKind::kAverages));
    }
  }
}

// Each rank copies and writes about as much as any other, rank 0's weights counted.
TEST(ShardOptimizer, RanksWriteEqualParts) {
  EXPECT_EQ(ShareOut(std::vector<size_t>{}, 3, 5), std::vector<int>{});
  EXPECT_EQ(ShareOut(std::vector<size_t>{4, 9, 0, 4, 5}, 2, 0), std::vector<int>({1, 0, 1, 0, 1}));
  EXPECT_EQ(ShareOut(std::vector<size_t>{4, 4, 4}, 3, 6), std::vector<int>({1, 2, 1}));
  const TempFolder folder;
  Train(folder / "out", kTiedNet, 3,
        With({"steps=1", "distributed.bucket_bytes=8"}, "direct", true), "adam {}");
  size_t weights = 0, largest = 0, all = 0;
  for (const auto& [name, values] : WeightsOf(folder / "out", 1)) {
    weights += values.size() * sizeof(double);
    largest = std::max(largest, values.size() * sizeof(double));
  }
  std::vector<size_t> written = SlotsOf(folder / "out", 1, 3).of_file;
  written[0] += weights;
  for (const size_t bytes : written) all += bytes;
  EXPECT_EQ(all, 3 * weights);
  for (const size_t bytes : written) EXPECT_NEAR(bytes, weights, largest);
}

// From parts or the whole, to parts or the whole, on another number of ranks.
TEST(ShardOptimizer, ResumesWithAndWithoutOnAnyRanks) {
  const TempFolder folder;
  const auto train = [&](const std::string& out, int ranks, const std::string& steps, bool shard) {
    return Train(folder / out, kTiedNet, ranks, With({"steps=" + steps}, "direct", shard),
                 "adam {}");
  };
  train("whole", 3, "3", false);
  train("parts", 3, "3", true);
  for (const int ranks : {1, 2, 5}) {
    std::vector<std::string> expected;
    for (const bool shard : {false, true}) {
      for (const char* from : {"whole", "parts"}) {
        const std::string out = absl::StrCat(from, ranks, shard);
        std::filesystem::copy(folder / from, folder / out,
                              std::filesystem::copy_options::recursive);
        const auto digests = train(out, ranks, "6", shard);
        if (expected.empty()) expected = digests;
        EXPECT_EQ(digests, expected) << "from " << from << (shard ? " to parts" : " to the whole");
      }
    }
  }
}

// As one of an earlier release, whose default was the ring, goes on with this one's.
TEST(KeepAllreduce, ARingsRunHasItsBitsAndNoWarning) {
  const TempFolder folder;
  const std::vector<std::string> length = {"steps=10", "checkpoint_every=5"};
  const auto straight = Train(folder / "ring", kTiedNet, 3, With(length, "ring", false));
  EXPECT_NE(Train(folder / "auto", kTiedNet, 3, length), straight);  // or it would prove nothing
  std::filesystem::remove_all(folder / "ring/checkpoints/step_00000010");
  testing::internal::CaptureStdout();
  EXPECT_EQ(Train(folder / "ring", kTiedNet, 3, length), straight);
  EXPECT_FALSE(absl::StrContains(testing::internal::GetCapturedStdout(), "resumed with"));
}

}  // namespace
}  // namespace gyre
