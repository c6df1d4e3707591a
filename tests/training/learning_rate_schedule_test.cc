#include "engine/training/learning_rate_schedule.h"

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

TEST(LearningRateSchedule, Constant) {
  for (const char* text : {"base: 0.5", "base: 0.5 constant {}"}) {
    for (int64_t step : {0, 1, 99, 100, 1000}) {
      EXPECT_EQ(LearningRateAt(Config(text), step, 100), 0.5) << text << " step " << step;
    }
  }
}

TEST(LearningRateSchedule, StepDropsEveryFewSteps) {
  const LearningRateConfig config = Config("base: 8 step { every: 3 gamma: 0.5 }");
  const double expected[] = {8, 8, 8, 4, 4, 4, 2, 2, 2, 1};
  for (int64_t step = 0; step < 10; ++step) {
    EXPECT_EQ(LearningRateAt(config, step, 10), expected[step]) << step;
  }
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

TEST(LearningRateSchedule, WarmUpIsLinearAndReachesBase) {
  for (const char* schedule : {"", "constant {}", "step { every: 3 gamma: 0.5 }", "cosine {}"}) {
    LearningRateConfig config = Config(schedule);
    config.set_base(8);
    config.set_warmup_steps(4);
    EXPECT_EQ(LearningRateAt(config, 0, 20), 2) << schedule;
    EXPECT_EQ(LearningRateAt(config, 1, 20), 4) << schedule;
    EXPECT_EQ(LearningRateAt(config, 3, 20), 8) << schedule;  // its last step
    EXPECT_EQ(LearningRateAt(config, 4, 20), 8) << schedule;  // the schedule's first
  }
}

TEST(LearningRateSchedule, ScheduleCountsFromTheEndOfTheWarmUp) {
  for (const char* schedule : {"base: 8 step { every: 3 gamma: 0.5 }", "base: 8 cosine {}"}) {
    const LearningRateConfig plain = Config(schedule);
    LearningRateConfig warm = plain;
    warm.set_warmup_steps(5);
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

TEST(LearningRateSchedule, RisesInTheWarmUpAndThenNeverRises) {
  for (const char* schedule :
       {"constant {}", "step { every: 7 gamma: 0.3 }", "cosine { final: 0.01 }"}) {
    for (int64_t warmup : {0, 1, 2, 13}) {
      LearningRateConfig config = Config(schedule);
      config.set_base(0.1f);
      config.set_warmup_steps(warmup);
      for (int64_t step = 1; step < 60; ++step) {
        const double before = LearningRateAt(config, step - 1, 50);
        const double now = LearningRateAt(config, step, 50);
        EXPECT_GT(now, 0);
        if (step < warmup) {
          EXPECT_GT(now, before) << schedule << " warm-up " << warmup << " step " << step;
        } else {
          EXPECT_LE(now, before) << schedule << " warm-up " << warmup << " step " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gyre
