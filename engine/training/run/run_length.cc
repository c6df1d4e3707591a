#include "engine/training/run/run_length.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/decimal.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {
namespace {

// The rate without factors.  `shift` moves cosine on by so many steps of this length, after steps
// of another length.
double ScheduledRate(const LearningRateConfig& config, int64_t step, int64_t total_steps,
                     double shift) {
  const double base = config.base();
  const int64_t warmup = config.warmup_steps();
  if (step < warmup) return base * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const int64_t passed = step - warmup, length = total_steps - warmup;
  if (config.has_step()) {
    const int64_t drops = passed / config.step().every();
    return base * std::pow(config.step().gamma(), static_cast<double>(drops));
  }
  if (!config.has_cosine()) return base;
  const double final_rate = config.cosine().final();
  if (passed >= length) return final_rate;
  const double share =
      std::max(0.0, static_cast<double>(passed) + shift) / (static_cast<double>(length) + shift);
  return final_rate + (base - final_rate) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

}  // namespace

RunLength::RunLength(const TrainerConfig& config, int64_t epoch_samples)
    : config_(config),
      epoch_samples_(epoch_samples),
      step_samples_(SamplesAStep(config)),
      total_steps_(StepsInAll()) {}

double RunLength::SamplesInAll() const {
  const double samples = config_.epochs() * static_cast<double>(epoch_samples_);
  const double above = CeilOfProduct(samples);
  return above == FloorOfProduct(samples) ? above : samples;
}

int64_t RunLength::StepsInAll() const {
  if (config_.has_steps()) return config_.steps();
  const double steps = std::ceil((SamplesInAll() - static_cast<double>(first_position_)) /
                                 static_cast<double>(step_samples_));
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

absl::Status RunLength::GoOnFrom(int64_t step, int64_t position) {
  first_position_ = position - step * step_samples_;
  total_steps_ = StepsInAll();
  if (step == 0 || step < total_steps_) return absl::OkStatus();
  // The last step of a run ends beyond its last epoch by less than a step.
  const bool ended = config_.has_steps()
                         ? step == total_steps_
                         : static_cast<double>(position - position / step) < SamplesInAll();
  total_steps_ = step;
  if (ended) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the checkpoint to resume from, of step %d and %d samples, is beyond the end of this run, "
      "%s; raise that, or resume from an earlier checkpoint",
      step, position,
      config_.has_steps()
          ? absl::StrCat("steps: ", config_.steps())
          : absl::StrFormat("epochs: %g, of %d samples each", config_.epochs(), epoch_samples_)));
}

double RunLength::EpochsAt(int64_t step) const {
  return static_cast<double>(PositionAt(step)) / static_cast<double>(epoch_samples_);
}

double RunLength::LearningRate(int64_t step, int workers) const {
  const LearningRateConfig& config = config_.learning_rate();
  const double shift = config_.has_steps() ? 0
                                           : static_cast<double>(first_position_) /
                                                 static_cast<double>(step_samples_);
  const int64_t epoch = PositionAt(step) / epoch_samples_;
  double factor = std::pow(config.epoch_decay(), static_cast<double>(epoch));
  if (config.has_rank_damping()) factor /= 1 + workers / config.rank_damping();
  if (config.has_batch_scaling()) {
    const LearningRateConfig::BatchScaling& batch = config.batch_scaling();
    const double k = static_cast<double>(step_samples_) / static_cast<double>(batch.base_batch());
    factor *= batch.rule() == LearningRateConfig::BatchScaling::LINEAR ? k : std::sqrt(k);
  }
  return ScheduledRate(config, step, total_steps_, shift) * factor;
}

bool RunLength::IsDue(int64_t every, int64_t step) const {
  if (step == total_steps_) return true;
  if (every > 0) return step % every == 0;
  return PositionAt(step) % epoch_samples_ < step_samples_;
}

}  // namespace gyre
