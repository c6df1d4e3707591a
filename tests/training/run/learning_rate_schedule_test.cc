#include "engine/training/run/learning_rate_schedule.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gyre {
namespace {

LearningRateConfig Config(const char* text) {
  LearningRateConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

TEST(LearningRateSchedule, StepUsesItsDefaultGamma) {
  const LearningRateConfig config = Config("base: 1 step { every: 1 }");
  EXPECT_FLOAT_EQ(LearningRateAt(config, 3, 10), 1e-3f);
}

TEST(LearningRateSchedule, CosineGoesFromBaseToFinal) {
  const LearningRateConfig config = Config("base: 1 cosine { final: 0.25 }");
  EXPECT_EQ(LearningRateAt(config, 0, 100), 1);
  EXPECT_NEAR(LearningRateAt(config, 25, 100), 0.25 + 0.75 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_NEAR(LearningRateAt(config, 50, 100), 0.625, 1e-15);
  EXPECT_NEAR(LearningRateAt(config, 99, 100), 0.25, 2e-4);
  EXPECT_GT(LearningRateAt(config, 99, 100), 0.25);
  EXPECT_EQ(LearningRateAt(config, 100, 100), 0.25);
  EXPECT_EQ(LearningRateAt(config, 1000, 100), 0.25);
}

TEST(LearningRateSchedule, CosineOfOneStep) {
  const LearningRateConfig config = Config("base: 1 cosine {}");
  EXPECT_EQ(LearningRateAt(config, 0, 1), 1);
  EXPECT_EQ(LearningRateAt(config, 0, 0), 0);
}

TEST(LearningRateSchedule, ScheduleCountsFromTheEndOfTheWarmUp) {
  for (const char* schedule : {"base: 8 step { every: 3 gamma: 0.5 }", "base: 8 cosine {}"}) {
    const LearningRateConfig plain = Config(schedule);
    LearningRateConfig warm = plain;
    warm.set_warmup_steps(5);
    for (int64_t step = 0; step < 5; ++step) {
      EXPECT_DOUBLE_EQ(LearningRateAt(warm, step, 15), 8 * (step + 1) / 5.) << schedule;
    }
    for (int64_t step = 0; step < 10; ++step) {
      EXPECT_EQ(LearningRateAt(warm, step + 5, 15), LearningRateAt(plain, step, 10))
          << schedule << " step " << step;
    }
  }
}

TEST(LearningRateSchedule, WarmUpLongerThanTheRun) {
  const LearningRateConfig config = Config("base: 8 warmup_steps: 16 cosine {}");
  EXPECT_EQ(LearningRateAt(config, 3, 4), 2);
  EXPECT_EQ(LearningRateAt(config, 15, 4), 8);
  EXPECT_EQ(LearningRateAt(config, 16, 4), 0);
}

// The rate of a run's step, as the trainer has it.
double RateAt(const LearningRateConfig& config, int64_t step, int64_t total_steps,
              const LearningRateScaling& scaling) {
  return LearningRateAt(config, step, total_steps) * LearningRateFactor(config, scaling);
}

TEST(LearningRateSchedule, NothingIsScaledUnlessTheConfigSaysSo) {
  for (const int ranks : {1, 2, 320}) {
    EXPECT_EQ(LearningRateFactor(Config("base: 1 cosine {} warmup_steps: 3"),
                                 {.epoch = 7, .samples_a_step = 1000, .ranks = ranks}),
              1);
  }
}

// The effective rate on 1 to 320 ranks, step by step, beside what it is made of written out.
TEST(LearningRateSchedule, FactorsComposeWithEveryScheduleAndTheWarmUp) {
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
    LearningRateConfig config = Config(schedule);
    config.set_epoch_decay(0.75);
    config.set_rank_damping(16);
    config.mutable_batch_scaling()->set_base_batch(256);
    for (int ranks = 1; ranks <= 320; ++ranks) {
      for (int64_t step = 0; step < kSteps; ++step) {
        const LearningRateScaling scaling = {
            .epoch = step / kEpochSteps, .samples_a_step = kBatch, .ranks = ranks};
        const double expected =
            rate(step) * std::pow(0.75, step / kEpochSteps) / (1 + ranks / 16.) * 4;
        ASSERT_NEAR(RateAt(config, step, kSteps, scaling), expected, 1e-14 * expected)
            << schedule << " step " << step << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(LearningRateSchedule, BatchScalingIsLinearOrByTheRoot) {
  const auto factor = [](const char* rule, int64_t samples) {
    LearningRateConfig config = Config(rule);
    config.mutable_batch_scaling()->set_base_batch(256);
    return LearningRateFactor(config, {.samples_a_step = samples});
  };
  for (const char* linear : {"", "batch_scaling { rule: LINEAR }"}) {
    EXPECT_EQ(factor(linear, 256), 1);
    EXPECT_EQ(factor(linear, 8192), 32);
    EXPECT_EQ(factor(linear, 64), 0.25);
  }
  EXPECT_EQ(factor("batch_scaling { rule: SQUARE_ROOT }", 256), 1);
  EXPECT_EQ(factor("batch_scaling { rule: SQUARE_ROOT }", 4096), 4);
  EXPECT_EQ(factor("batch_scaling { rule: SQUARE_ROOT }", 64), 0.5);
}

}  // namespace
}  // namespace gyre
