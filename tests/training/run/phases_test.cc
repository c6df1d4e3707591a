// Parameters that train from a step on (trainable_from): as a plain loop over the formulas has it,
// with the same bits wherever a run stops, whoever updates, and however memory pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "tests/data/temp_folder.h"
#include "tests/training/run/run_on_threads.h"

namespace gyre {
namespace {

using testing::HasSubstr;

constexpr int64_t kIn = 30, kHidden = 41, kOut = 5, kSteps = 20;

constexpr char kNet[] = R"(
  name: "t"
  input { name: "x" dims: 30 }
  input { name: "y" dims: 5 }
  layer { name: "fc1" input: "x" dense { outputs: 41
    weight { trainable_from: 7 } bias { trainable_from: 7 } } }
  layer { name: "tanh" tanh {} }
  layer { name: "fc2" dense { outputs: 5 bias { trainable_from: 12 } } }
  layer { name: "loss" input: ["fc2", "y"] mean_squared_error {} })";
// By tensor, as the net has it.
const std::map<std::string, int64_t> kTrainableFrom = {
    {"fc1.weight", 7}, {"fc1.bias", 7}, {"fc2.weight", 0}, {"fc2.bias", 12}};

constexpr int64_t kMostSamples = 12;

std::unique_ptr<SamplesInMemory> Samples(int64_t size, double scale = 1) {
  auto samples = std::make_unique<SamplesInMemory>(size);
  std::mt19937 random(5);
  const auto normal = [&](int64_t) { return std::normal_distribution<double>()(random); };
  samples->Add<double>("x", {kIn}, normal);
  samples->Add<double>("y", {kOut}, [&](int64_t at) { return scale * normal(at); });
  return samples;
}

struct Training {
  std::string net = kNet;
  std::string optimizer = "adam { beta2: 0.99 } weight_decay: 0.01 ema { decay: 0.8 }";
  std::vector<std::string> overrides = {};
  int ranks = 1;
  int64_t samples = kMostSamples;  // and the batch
  double scale = 1;                // of targets
  size_t sim_bytes = 0;            // of the device; 0: it is the CPU
  PlannerKind planner = PlannerKind::kAuto;
  bool stops = false;  // asked to before it begins
};

struct Outcome {
  absl::Status status;
  std::string digest;
};

// Trains on ranks as threads, in a folder `out`, or goes on with what it holds.
Outcome Train(const std::string& out, const Training& run) {
  const auto trainer = *ParseTrainerText(absl::StrFormat(R"(
      net: "net" batch: %d steps: %d checkpoint_every: 100 keep_checkpoints: 100 precision: F64
      optimizer { %s } learning_rate { base: 0.02 } distributed { allreduce: "direct" }
      data { train { idx { images: "i" labels: "l" } } })",
                                                         run.samples, kSteps, run.optimizer),
                                         "trainer", run.overrides);
  const auto net = ParseNetText(run.net, "net");
  if (!net.ok()) return {net.status(), ""};
  const std::atomic<bool> stop = run.stops;
  TrainingOptions options;
  options.out = out;
  options.resume = std::filesystem::exists(out) ? "latest" : "";
  options.net_text = net->message->DebugString();
  options.pages.planner = run.planner;
  options.stop = &stop;
  const auto data = [&] { return Samples(run.samples, run.scale); };
  const auto digests = TrainOnThreads({.trainer = trainer,
                                       .net = *net,
                                       .data = data,
                                       .options = options,
                                       .ranks = run.ranks,
                                       .sim_bytes = run.sim_bytes});
  for (const auto& digest : digests) EXPECT_EQ(digest.value_or(""), digests[0].value_or(""));
  return {digests[0].status(), digests[0].value_or("")};
}

// The tensors of a checkpoint of one rank, in F64.
TensorValues TensorsOf(const std::string& out, int64_t step) {
  TensorValues tensors;
  for (const char* name : {"weights", "optimizer"}) {
    const auto file =
        *TensorFile::Read(absl::StrCat(StepFolder(out, step), "/", name, ".safetensors"));
    tensors.merge(ValuesOf(file));
  }
  return tensors;
}

class PhasesTest : public testing::Test {
 protected:
  std::string NewFolder() { return folder_ / absl::StrCat("run", runs_++); }
  std::string Digest(const Training& run) {
    const Outcome outcome = Train(NewFolder(), run);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    return outcome.digest;
  }
  std::string Refusal(const std::string& net, const Training& run = {}) {
    Training refused = run;
    refused.net = net;
    return std::string(Train(NewFolder(), refused).status.message());
  }

  TempFolder folder_;
  int runs_ = 0;
};

// The gradients of the net at these weights, for all samples.
TensorValues GradientsOf(TensorValues& weights) {
  const auto samples = Samples(kMostSamples);
  const double *x = samples->Values<double>(0), *y = samples->Values<double>(1);
  TensorValues gradients;
  for (const auto& [name, from] : kTrainableFrom) gradients[name].resize(weights[name].size());
  for (int64_t n = 0; n < kMostSamples; ++n, x += kIn, y += kOut) {
    std::vector<double> hidden(kHidden), slopes(kHidden);
    for (int64_t h = 0; h < kHidden; ++h) {
      double sum = weights["fc1.bias"][h];
      for (int64_t i = 0; i < kIn; ++i) sum += weights["fc1.weight"][h * kIn + i] * x[i];
      hidden[h] = std::tanh(sum);
    }
    for (int64_t o = 0; o < kOut; ++o) {
      double sum = weights["fc2.bias"][o];
      for (int64_t h = 0; h < kHidden; ++h)
        sum += weights["fc2.weight"][o * kHidden + h] * hidden[h];
      const double slope = 2 * (sum - y[o]) / (kOut * kMostSamples);
      gradients["fc2.bias"][o] += slope;
      for (int64_t h = 0; h < kHidden; ++h) {
        gradients["fc2.weight"][o * kHidden + h] += slope * hidden[h];
        slopes[h] += slope * weights["fc2.weight"][o * kHidden + h];
      }
    }
    for (int64_t h = 0; h < kHidden; ++h) {
      const double slope = slopes[h] * (1 - hidden[h] * hidden[h]);
      gradients["fc1.bias"][h] += slope;
      for (int64_t i = 0; i < kIn; ++i) gradients["fc1.weight"][h * kIn + i] += slope * x[i];
    }
  }
  return gradients;
}

// Each tensor counts its own updates, from its first, as PyTorch does.
TEST_F(PhasesTest, FollowTheFormulasForTwentySteps) {
  constexpr double kRate = 0.02, kAverage = 0.8, kMomentum = 0.875, kBeta1 = 0.9, kBeta2 = 0.99;
  constexpr double kDecay = 0.01, kEpsilon = 1e-8;
  TensorValues initial;
  {
    const std::string out = NewFolder();
    const Training still{.overrides = {"steps=1", "learning_rate.base=0"}};
    ASSERT_TRUE(Train(out, still).status.ok());
    initial = TensorsOf(out, 1);
  }
  for (const bool adam : {true, false}) {
    TensorValues expected;
    for (const auto& [name, from] : kTrainableFrom) expected[name] = initial[name];
    for (int64_t step = 0; step < kSteps; ++step) {
      TensorValues gradients = GradientsOf(expected);
      for (const auto& [name, from] : kTrainableFrom) {
        if (step < from) continue;
        const bool first = step == from;
        const auto t = static_cast<double>(step - from + 1);
        const size_t size = expected[name].size();
        const auto slot = [&](const char* kind) -> std::vector<double>& {
          std::vector<double>& values = expected[name + kind];
          values.resize(size);
          return values;
        };
        for (size_t i = 0; i < size; ++i) {
          double& v = expected[name][i];
          const double g = gradients[name][i] + kDecay * v;
          if (adam) {
            double &m = slot(".first_moment")[i], &s = slot(".second_moment")[i];
            m = kBeta1 * m + (1 - kBeta1) * g;
            s = kBeta2 * s + (1 - kBeta2) * g * g;
            v -= kRate * (m / (1 - std::pow(kBeta1, t))) /
                 (std::sqrt(s / (1 - std::pow(kBeta2, t))) + kEpsilon);
          } else {
            double& m = slot(".momentum")[i];
            m = kMomentum * m + g;
            v -= kRate * m;
          }
          double& average = slot(".average")[i];
          average = first ? v : average + (1 - kAverage) * (v - average);
        }
      }
    }
    const std::string out = NewFolder();
    Training run;
    if (!adam) run.optimizer = "sgd { momentum: 0.875 } weight_decay: 0.01 ema { decay: 0.8 }";
    ASSERT_TRUE(Train(out, run).status.ok());
    const TensorValues got = TensorsOf(out, kSteps);
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, values] : expected) {
      ASSERT_THAT(got.at(name), testing::Pointwise(testing::DoubleNear(1e-12), values)) << name;
    }
    // What has not begun has no state, and its values are the first.
    const TensorValues early = TensorsOf(out, 7);
    EXPECT_EQ(early.at("fc1.weight"), initial.at("fc1.weight"));
    EXPECT_EQ(early.contains("fc1.weight.average") || early.contains("fc2.bias.average"), false);
    EXPECT_TRUE(early.contains("fc2.weight.average"));
  }
}

TEST_F(PhasesTest, StoppedAnywhereIsStraight) {
  const std::vector<std::string> variants[] = {{"optimizer.clip_norm=0.5"},
                                               {"precision=BF16", "batch=6", "accumulate=2"}};
  for (const std::vector<std::string>& variant : variants) {
    const Training run{.overrides = variant};
    const std::string straight = Digest(run);
    for (const int64_t stop : {6, 7, 8, 11, 12, 13}) {
      const std::string out = NewFolder();
      Training first = run;
      first.overrides.push_back(absl::StrCat("steps=", stop));
      EXPECT_TRUE(Train(out, first).status.ok());
      EXPECT_EQ(Train(out, run).digest, straight) << stop;
    }
  }
}

// All ranks have heard of the signal when they come together for the next phase.
TEST_F(PhasesTest, AStopComesBeforeAPhase) {
  const std::string net = absl::StrReplaceAll(kNet, {{"trainable_from: 7", "trainable_from: 2"}});
  for (const int ranks : {1, 2}) {
    Training run{.net = net, .ranks = ranks};
    const std::string straight = Digest(run), out = NewFolder();
    run.stops = true;
    EXPECT_THAT(Train(out, run).status.message(), HasSubstr("stopped after step 2;"));
    run.stops = false;
    EXPECT_EQ(Train(out, run).digest, straight) << ranks;
  }
}

TEST_F(PhasesTest, FromStepZeroIsWithout) {
  const std::string zero = absl::StrReplaceAll(kNet, {{"trainable_from: 12", "trainable_from: 0"},
                                                      {"trainable_from: 7", "trainable_from: 0"}});
  const std::string without = absl::StrReplaceAll(zero, {{"trainable_from: 0", ""}});
  const std::string digest = Digest({.net = without});
  EXPECT_EQ(Digest({.net = zero}), digest);
  EXPECT_NE(Digest({}), digest);
  // A run goes on with either.
  const std::string out = NewFolder();
  EXPECT_TRUE(Train(out, {.net = zero, .overrides = {"steps=9"}}).status.ok());
  EXPECT_EQ(Train(out, {.net = without}).digest, digest);
}

// By whoever updates, also where one goes on from another's checkpoint of a boundary.
TEST_F(PhasesTest, AnyExchangeHasTheSameBits) {
  const std::vector<std::string> ways = {"accumulate=1", "distributed.shard_optimizer=true",
                                         "distributed.sync=BSP"};
  for (const int ranks : {2, 3}) {
    const auto of = [&](const std::string& way, const std::vector<std::string>& more = {}) {
      Training run{.overrides = {"optimizer.clip_norm=0.5", way}, .ranks = ranks};
      run.overrides.insert(run.overrides.end(), more.begin(), more.end());
      return run;
    };
    const std::string straight = Digest(of(ways[0]));
    for (size_t w = 1; w < ways.size(); ++w) EXPECT_EQ(Digest(of(ways[w])), straight) << ways[w];
    for (size_t w = 0; w < ways.size(); ++w) {
      const std::string out = NewFolder();
      EXPECT_TRUE(Train(out, of(ways[w], {absl::StrCat("steps=", 6 + w)})).status.ok());
      EXPECT_EQ(Train(out, of(ways[(w + 1) % ways.size()])).digest, straight) << ways[w];
    }
    // Two ranks train, and the last only serves.
    if (ranks == 3) {
      EXPECT_EQ(Digest(of(ways[2], {"distributed.servers=1"})),
                Digest({.overrides = {"optimizer.clip_norm=0.5"}, .ranks = 2}));
    }
  }
  // A step's two updates of a parameter that begins are Adam's first and second: some element takes
  // nearly all of the rate.
  for (const char* sync : {"SSP", "ASYNC"}) {
    const std::string out = NewFolder();
    EXPECT_TRUE(Train(out, {.overrides = {absl::StrCat("distributed.sync=", sync), "steps=8",
                                          "checkpoint_every=1"},
                            .ranks = 2})
                    .status.ok());
    const auto values = [&](int64_t step) {
      return ValuesOf(*TensorFile::Read(StepFolder(out, step) + "/weights.safetensors"));
    };
    const TensorValues before = values(7), after = values(8);
    double most = 0;
    for (size_t i = 0; i < kIn * kHidden; ++i) {
      most = std::max(most, std::abs(after.at("fc1.weight")[i] - before.at("fc1.weight")[i]));
    }
    EXPECT_GT(most, 0.8 * 0.02) << sync;
  }
}

TEST_F(PhasesTest, PagedIsResident) {
  for (const int ranks : {1, 2}) {
    const std::string resident = Digest({.ranks = ranks, .sim_bytes = size_t{1} << 30});
    for (const char* sync : {"ALLREDUCE", "BSP"}) {
      Training small{.overrides = {absl::StrCat("distributed.sync=", sync)}, .ranks = ranks};
      small.sim_bytes = ranks == 1                            ? 66'000
                        : small.overrides[0].ends_with("BSP") ? 132'000
                                                              : 90'000;
      EXPECT_EQ(Digest(small), resident) << ranks << sync;
      small.planner = PlannerKind::kNone;
      EXPECT_THAT(Refusal(kNet, small), HasSubstr("device memory: expected at least"));
    }
  }
}

// A loss scale that overflows every few steps.  The run is one that leaves these steps out.
TEST_F(PhasesTest, SkippedUpdatesDoNotCount) {
  // 2^90, with gradients of some 1e12, is about what F32 holds.
  const std::string scale = "loss_scale.dynamic.initial=1237940039285380274899124224";
  for (const int64_t from : {4, 5, 6}) {
    const auto with = [&](int64_t step) {
      Training run{.net = absl::StrReplaceAll(
                       kNet, {{"trainable_from: 7", absl::StrCat("trainable_from: ", step)},
                              {"bias { trainable_from: 12 }", ""}}),
                   .overrides = {"precision=F32", "learning_rate.base=1e-6"},
                   .samples = 1,
                   .scale = 1e12};
      return run;
    };
    Training skipping = with(from);
    skipping.overrides.insert(skipping.overrides.end(),
                              {scale, "loss_scale.dynamic.growth_interval=2"});
    const std::string out = NewFolder();
    const Outcome skipped = Train(out, skipping);
    ASSERT_TRUE(skipped.status.ok()) << skipped.status;
    const CheckpointState state = *StateOf(StepFolder(out, kSteps));
    const auto& before = state.loss_scale().skipped_before();
    ASSERT_EQ(before.size(), 1);
    const int64_t all = state.loss_scale().skipped(), first = before.at(from);
    EXPECT_GT(first, 0);
    EXPECT_GT(all, first + 2);
    Training plain = with(from - first);
    plain.overrides.push_back(absl::StrCat("steps=", kSteps - all));
    EXPECT_EQ(Digest(plain), skipped.digest) << from;
    // And resumed.
    for (const int64_t stop : {from, from + 1}) {
      const std::string resumed = NewFolder();
      Training part = skipping;
      part.overrides.push_back(absl::StrCat("steps=", stop));
      EXPECT_TRUE(Train(resumed, part).status.ok());
      EXPECT_EQ(Train(resumed, skipping).digest, skipped.digest) << from << " " << stop;
    }
  }
}

TEST_F(PhasesTest, AChangedStepIsRefusedOnceItHasCome) {
  const std::string out = NewFolder();
  ASSERT_TRUE(Train(out, {.overrides = {"steps=9"}}).status.ok());
  const auto with = [](const char* from, const char* to) {
    return absl::StrReplaceAll(kNet, {{from, to}});
  };
  for (const char* to : {"trainable_from: 8", "trainable_from: 0", "trainable_from: 10"}) {
    EXPECT_THAT(Train(out, {.net = with("trainable_from: 7", to)}).status.message(),
                HasSubstr("was made with another net"));
  }
  const std::string later = with("trainable_from: 12", "trainable_from: 15");
  const std::string expected = Digest({.net = later});
  EXPECT_EQ(Train(out, {.net = later}).digest, expected);
}

TEST_F(PhasesTest, Errors) {
  const auto with = [](const std::string& weight, const std::string& bias = "") {
    return absl::StrCat(R"(
      input { name: "x" dims: 30 }
      input { name: "y" dims: 5 }
      layer { name: "fc" input: "x" dense { outputs: 5 weight { )",
                        weight, " } bias { ", bias, R"( } } }
      layer { name: "loss" input: ["fc", "y"] mean_squared_error {} })");
  };
  EXPECT_EQ(Refusal(with("trainable_from: -1")),
            "net:4:65: layer \"fc\": trainable_from must be >= 0, got -1");
  EXPECT_EQ(
      Refusal(with("trainable_from: 3 learning_rate_multiplier: 0")),
      "net:4:65: layer \"fc\": trainable_from is 3, but a learning_rate_multiplier of 0 never "
      "trains; leave one of them out");
  EXPECT_EQ(
      Refusal(with("trainable_from: 9", "trainable_from: 3")),
      "net: no parameter trains before step 3, the first trainable_from; leave trainable_from "
      "out where training begins");
  std::string many = "input { name: \"x\" dims: 30 } input { name: \"y\" dims: 5 }\n";
  for (int i = 0; i < 17; ++i) {
    absl::StrAppend(&many, "layer { name: \"fc", i, "\" input: \"", i == 0 ? "x" : "fc",
                    i == 0 ? "" : absl::StrCat(i - 1),
                    "\" dense { outputs: 30 bias { trainable_from: ", i, " } } }\n");
  }
  EXPECT_EQ(Refusal(many),
            "net:18:63: layer \"fc16\": trainable_from is 16, but the layers before have 15 other "
            "steps above 0, and a net has no more; use one of them");
  const std::string shared = R"(
      input { name: "x" dims: 30 }
      input { name: "y" dims: 5 }
      layer { name: "fc1" input: "x" dense { outputs: 30 weight { name: "w" trainable_from: 3 } } }
      layer { name: "fc2" dense { outputs: 30 weight { name: "w" } } }
      layer { name: "fc3" dense { outputs: 5 } }
      layer { name: "loss" input: ["fc3", "y"] mean_squared_error {} })";
  EXPECT_THAT(Refusal(shared), HasSubstr("but its trainable_from is 0 and the other's 3"));
}

// Too little memory is told before the first step, however late it will be too little.
TEST_F(PhasesTest, AllPhasesArePlannedAtOnce) {
  const auto refusal = [&](size_t bytes) {
    return Refusal(kNet, {.sim_bytes = bytes, .planner = PlannerKind::kNone});
  };
  size_t fits = 1000;
  while (!refusal(fits).empty()) fits += 1000;
  EXPECT_THAT(refusal(fits - 2000), HasSubstr("from step 7 on (trainable_from): device memory:"));
  // Of a run that ends before.
  const Training brief{
      .overrides = {"steps=7"}, .sim_bytes = fits - 2000, .planner = PlannerKind::kNone};
  const std::string out = NewFolder();
  EXPECT_TRUE(Train(out, brief).status.ok());
  EXPECT_TRUE(Train(out, brief).status.ok());  // it has ended
}

// Of the slots that may be missing, only those are that have not begun.
TEST_F(PhasesTest, AMissingSlotIsAnError) {
  for (const int64_t step : {7, 8}) {
    const std::string out = NewFolder();
    ASSERT_TRUE(Train(out, {.overrides = {absl::StrCat("steps=", step)}}).status.ok());
    // The optimizer of a run that has no averages.
    Training other{.optimizer = "adam { beta2: 0.99 } weight_decay: 0.01",
                   .overrides = {absl::StrCat("steps=", step)}};
    const std::string donor = NewFolder();
    ASSERT_TRUE(Train(donor, other).status.ok());
    EXPECT_THAT(Train(donor, {}).status.message(), HasSubstr("it holds no tensor \"fc")) << step;
  }
}

}  // namespace
}  // namespace gyre
