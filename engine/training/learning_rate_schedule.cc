#include "engine/training/learning_rate_schedule.h"

#include <cmath>
#include <numbers>

namespace gyre {

double LearningRateAt(const LearningRateConfig& config, int64_t step, int64_t total_steps) {
  const double base = config.base();
  const int64_t warmup = config.warmup_steps();
  if (step < warmup) return base * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const int64_t passed = step - warmup, length = total_steps - warmup;
  switch (config.schedule_case()) {
    case LearningRateConfig::kStep: {
      const int64_t drops = passed / config.step().every();
      return base * std::pow(config.step().gamma(), static_cast<double>(drops));
    }
    case LearningRateConfig::kCosine: {
      const double final_rate = config.cosine().final();
      if (passed >= length) return final_rate;
      const double share = static_cast<double>(passed) / static_cast<double>(length);
      return final_rate + (base - final_rate) * (1 + std::cos(std::numbers::pi * share)) / 2;
    }
    case LearningRateConfig::kConstant:
    case LearningRateConfig::SCHEDULE_NOT_SET:
      break;
  }
  return base;
}

}  // namespace gyre
