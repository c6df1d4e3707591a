// How many steps a run has, which are due for what, and their rates; above all where it goes on
// with another batch than before.
#include "engine/training/run/run_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"

namespace gyre {
namespace {

using testing::ElementsAre;

TrainerConfig Config(const std::string& text) {
  TrainerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

std::vector<int64_t> DueAtEpochs(const RunLength& length, int64_t after = 0) {
  std::vector<int64_t> steps;
  for (int64_t step = after + 1; step <= length.total_steps(); ++step) {
    if (length.IsDue(/*every=*/0, step)) steps.push_back(step);
  }
  return steps;
}

TEST(RunLength, AnEpochIsDoneByAStep) {
  const TrainerConfig config = Config("batch: 8 epochs: 3");
  const RunLength length(config, 50);
  EXPECT_EQ(length.total_steps(), 19);  // of 150 samples
  EXPECT_THAT(DueAtEpochs(length), ElementsAre(7, 13, 19));
  EXPECT_EQ(length.EpochsAt(7), 56. / 50);
  EXPECT_TRUE(length.IsDue(5, 10));
  EXPECT_FALSE(length.IsDue(5, 11));
  EXPECT_TRUE(length.IsDue(5, 19));
  // As doubles have it 2007.0000000000002 steps.
  EXPECT_EQ(RunLength(Config("batch: 1 epochs: 2.007"), 1000).total_steps(), 2007);
}

// 48 samples: after one epoch by one batch, another by another.
TEST(RunLength, AnotherBatchTrainsTheSameEpochs) {
  const struct {
    int64_t before, now, total;
    std::vector<int64_t> due;
  } cases[] = {{8, 8, 12, {12}}, {8, 4, 18, {18}},  {4, 8, 18, {18}},
               {8, 5, 16, {16}}, {1, 48, 49, {49}}, {48, 1, 49, {49}}};
  for (const auto& c : cases) {
    TrainerConfig config = Config("epochs: 2 accumulate: 1");
    config.set_batch(c.now);
    RunLength length(config, 48);
    const int64_t step = 48 / c.before;
    ASSERT_EQ(length.GoOnFrom(step, 48), absl::OkStatus());
    EXPECT_EQ(length.total_steps(), c.total) << c.before << " " << c.now;
    EXPECT_EQ(DueAtEpochs(length, step), c.due) << c.before << " " << c.now;
    EXPECT_EQ(length.EpochsAt(step), 1);
    EXPECT_TRUE(length.IsDue(0, step));
  }
  // In the middle of an epoch, and three epochs in all.
  const TrainerConfig config = Config("batch: 16 epochs: 3");
  RunLength length(config, 48);
  ASSERT_EQ(length.GoOnFrom(5, 40), absl::OkStatus());
  EXPECT_EQ(length.total_steps(), 5 + 7);  // 104 samples
  EXPECT_THAT(DueAtEpochs(length, 5), ElementsAre(6, 9, 12));
}

TEST(RunLength, AnotherBatchTrainsTheSameSteps) {
  const TrainerConfig config = Config("batch: 4 steps: 20");
  RunLength length(config, 48);
  ASSERT_EQ(length.GoOnFrom(6, 48), absl::OkStatus());
  EXPECT_EQ(length.total_steps(), 20);
  EXPECT_EQ(length.EpochsAt(20), 104. / 48);
}

// Along a cosine, too, which does not jump back.
TEST(RunLength, TheRateGoesOnWhereItWas) {
  const std::string rate = " learning_rate { base: 1 cosine {} }";
  const TrainerConfig straight = Config("batch: 8 epochs: 2" + rate);
  for (const int64_t batch : {2, 4, 12}) {
    TrainerConfig config = straight;
    config.set_batch(batch);
    RunLength length(config, 48);
    ASSERT_EQ(length.GoOnFrom(6, 48), absl::OkStatus());
    EXPECT_EQ(length.LearningRate(6, 1), RunLength(straight, 48).LearningRate(6, 1));
    // A quarter of the run later.
    EXPECT_DOUBLE_EQ(length.LearningRate(6 + 24 / batch, 1),
                     RunLength(straight, 48).LearningRate(9, 1))
        << batch;
  }
  // By steps, it is the step that counts.
  const TrainerConfig steps = Config("batch: 4 steps: 12" + rate);
  RunLength length(steps, 48);
  ASSERT_EQ(length.GoOnFrom(6, 48), absl::OkStatus());
  EXPECT_DOUBLE_EQ(length.LearningRate(6, 1), 0.5);
}

// What has ended has nothing left to do; what is beyond the end is a mistake.
TEST(RunLength, BeyondItsEndItDoesNotGoOn) {
  const TrainerConfig epochs = Config("batch: 2 epochs: 2");
  RunLength length(epochs, 50);
  ASSERT_EQ(length.GoOnFrom(13, 104), absl::OkStatus());  // 2 epochs by 8 at a time
  EXPECT_EQ(length.total_steps(), 13);
  EXPECT_EQ(length.GoOnFrom(14, 112).message(),
            "the checkpoint to resume from, of step 14 and 112 samples, is beyond the end of this "
            "run, epochs: 2, of 50 samples each; raise that, or resume from an earlier checkpoint");
  const TrainerConfig steps = Config("batch: 2 steps: 9");
  RunLength of_steps(steps, 50);
  EXPECT_EQ(of_steps.GoOnFrom(9, 18), absl::OkStatus());
  EXPECT_EQ(of_steps.GoOnFrom(10, 20).message(),
            "the checkpoint to resume from, of step 10 and 20 samples, is beyond the end of this "
            "run, steps: 9; raise that, or resume from an earlier checkpoint");
}

// The rate of a step in a run of so many steps, from the beginning.
double RateAt(const std::string& learning_rate, int64_t step, int64_t steps) {
  TrainerConfig config = Config(absl::StrCat("learning_rate { ", learning_rate, " }"));
  config.set_steps(steps);
  return RunLength(config, 1000).LearningRate(step, 1);
}

TEST(LearningRate, StepUsesItsDefaultGamma) {
  EXPECT_FLOAT_EQ(RateAt("base: 1 step { every: 1 }", 3, 10), 1e-3f);
}

TEST(LearningRate, CosineGoesFromBaseToFinal) {
  const char* const kCosine = "base: 1 cosine { final: 0.25 }";
  EXPECT_EQ(RateAt(kCosine, 0, 100), 1);
  EXPECT_NEAR(RateAt(kCosine, 25, 100), 0.25 + 0.75 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_NEAR(RateAt(kCosine, 50, 100), 0.625, 1e-15);
  EXPECT_NEAR(RateAt(kCosine, 99, 100), 0.25, 2e-4);
  EXPECT_GT(RateAt(kCosine, 99, 100), 0.25);
  EXPECT_EQ(RateAt(kCosine, 100, 100), 0.25);
  EXPECT_EQ(RateAt(kCosine, 1000, 100), 0.25);
  EXPECT_EQ(RateAt("base: 1 cosine {}", 0, 1), 1);
  EXPECT_EQ(RateAt("base: 1 cosine {}", 1, 1), 0);
}

TEST(LearningRate, ScheduleCountsFromTheEndOfTheWarmUp) {
  for (const std::string schedule : {"base: 8 step { every: 3 gamma: 0.5 }", "base: 8 cosine {}"}) {
    const std::string warm = schedule + " warmup_steps: 5";
    for (int64_t step = 0; step < 5; ++step) {
      EXPECT_DOUBLE_EQ(RateAt(warm, step, 15), 8 * (step + 1) / 5.) << schedule;
    }
    for (int64_t step = 0; step < 10; ++step) {
      EXPECT_EQ(RateAt(warm, step + 5, 15), RateAt(schedule, step, 10)) << schedule << " " << step;
    }
  }
  // A warm-up longer than the run.
  const char* const kLong = "base: 8 warmup_steps: 16 cosine {}";
  EXPECT_EQ(RateAt(kLong, 3, 4), 2);
  EXPECT_EQ(RateAt(kLong, 15, 4), 8);
  EXPECT_EQ(RateAt(kLong, 16, 4), 0);
}

// The effective rate on 1 to 320 ranks, step by step, beside what it is made of written out.
TEST(LearningRate, FactorsComposeWithEveryScheduleAndTheWarmUp) {
  constexpr int64_t kEpochSteps = 4, kSteps = 20, kBatch = 1024;
  const struct {
    const char* schedule;
    double (*rate)(int64_t step);  // with base 0.5
  } kSchedules[] = {
      {"base: 0.5", [](int64_t) { return 0.5; }},
      {"base: 0.5 constant {}", [](int64_t) { return 0.5; }},
      {"base: 0.5 step { every: 3 gamma: 0.1 }",
       [](int64_t step) { return 0.5 * std::pow(0.1, std::floor(step / 3)); }},
      {"base: 0.5 cosine { final: 0.1 }",
       [](int64_t step) { return 0.1 + 0.2 * (1 + std::cos(M_PI * step / 20)); }},
      {"base: 0.5 warmup_steps: 8", [](int64_t step) { return 0.5 * std::min(step + 1., 8.) / 8; }},
  };
  for (const auto& [schedule, rate] : kSchedules) {
    for (const bool scaled : {false, true}) {
      TrainerConfig config = Config(absl::StrCat(
          "learning_rate { ", schedule,
          scaled ? " epoch_decay: 0.75 rank_damping: 16 batch_scaling { base_batch: 256 }" : "",
          " }"));
      config.set_steps(kSteps);
      config.set_batch(kBatch);
      const RunLength length(config, kEpochSteps * kBatch);
      for (int ranks = 1; ranks <= 320; ++ranks) {
        for (int64_t step = 0; step < kSteps; ++step) {
          const double factor =
              scaled ? std::pow(0.75, step / kEpochSteps) / (1 + ranks / 16.) * 4 : 1;
          const double expected = rate(step) * factor;
          ASSERT_NEAR(length.LearningRate(step, ranks), expected, 1e-14 * expected)
              << schedule << " step " << step << ", " << ranks << " ranks";
        }
      }
    }
  }
}

TEST(LearningRate, BatchScalingIsLinearOrByTheRoot) {
  const auto rate = [](const std::string& rule, int64_t batch) {
    TrainerConfig config = Config(absl::StrCat(
        "steps: 1 accumulate: 2 learning_rate { base: 1 batch_scaling { base_batch: 256 ", rule,
        " } }"));
    config.set_batch(batch / 2);
    return RunLength(config, 10'000).LearningRate(0, 1);
  };
  for (const char* linear : {"", "rule: LINEAR"}) {
    EXPECT_EQ(rate(linear, 256), 1);
    EXPECT_EQ(rate(linear, 8192), 32);
    EXPECT_EQ(rate(linear, 64), 0.25);
  }
  EXPECT_EQ(rate("rule: SQUARE_ROOT", 256), 1);
  EXPECT_EQ(rate("rule: SQUARE_ROOT", 4096), 4);
  EXPECT_EQ(rate("rule: SQUARE_ROOT", 64), 0.5);
}

}  // namespace
}  // namespace gyre
