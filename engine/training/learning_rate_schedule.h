// learning_rate_schedule.h: the learning rate as a pure function of the step.
#pragma once

#include <cstdint>

#include "models/schema/trainer.pb.h"

namespace gyre {

// The rate of step `step` (from 0) of `total_steps`.  Warm-up: base * (step + 1) / warmup_steps
// while step < warmup_steps; the schedule is then counted from the end of the warm-up.  Without a
// schedule the rate is constant.  From total_steps on, cosine stays at its final rate, which the
// run's last step therefore comes close to and does not reach.
// Preconditions: the config passed ParseTrainer; step >= 0.
// Cosine source: Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts.
double LearningRateAt(const LearningRateConfig& config, int64_t step, int64_t total_steps);

}  // namespace gyre
