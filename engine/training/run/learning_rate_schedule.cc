#include "engine/training/run/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gyre {

double LearningRateAt(const LearningRateConfig& config, int64_t step, int64_t total_steps,
                      double shift) {
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
      const double share = std::max(0.0, static_cast<double>(passed) + shift) /
                           (static_cast<double>(length) + shift);
      return final_rate + (base - final_rate) * (1 + std::cos(std::numbers::pi * share)) / 2;
    }
    case LearningRateConfig::kConstant:
    case LearningRateConfig::SCHEDULE_NOT_SET:
      break;
  }
  return base;
}

double LearningRateFactor(const LearningRateConfig& config, const LearningRateScaling& scaling) {
  double factor = std::pow(config.epoch_decay(), static_cast<double>(scaling.epoch));
  if (config.has_rank_damping()) factor /= 1 + scaling.ranks / config.rank_damping();
  if (config.has_batch_scaling()) {
    const LearningRateConfig::BatchScaling& batch = config.batch_scaling();
    const double k =
        static_cast<double>(scaling.samples_a_step) / static_cast<double>(batch.base_batch());
    factor *= batch.rule() == LearningRateConfig::BatchScaling::LINEAR ? k : std::sqrt(k);
  }
  return factor;
}

}  // namespace gyre
