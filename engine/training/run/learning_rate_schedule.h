// learning_rate_schedule.h: the learning rate as a pure function of the step, and of how the run
// is made up.
#pragma once

#include <cstdint>

#include "models/schema/trainer.pb.h"

namespace gyre {

// The rate of step `step` (from 0) of `total_steps`.  Warm-up: base * (step + 1) / warmup_steps
// while step < warmup_steps; the schedule is then counted from the end of the warm-up.  Without a
// schedule the rate is constant.  From total_steps on, cosine stays at its final rate, which the
// run's last step therefore comes close to and does not reach.
// shift: by so many steps of its length cosine is further than `step` says, where the steps before
// had another length.
// Preconditions: the config passed ParseTrainer; step >= 0.
// Cosine source: Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts.
double LearningRateAt(const LearningRateConfig& config, int64_t step, int64_t total_steps,
                      double shift = 0);

// What the rate is multiplied by.
struct LearningRateScaling {
  int64_t epoch = 0;           // complete passes over the training data ahead of the step
  int64_t samples_a_step = 1;  // over all ranks and batches
  int ranks = 1;
};

// epoch_decay^epoch, times 1 / (1 + ranks / rank_damping), times samples_a_step / base_batch or the
// root of it, as far as the config has them; else 1.  LearningRateAt times this is the rate of a
// step, in the warm-up, too.  Precondition: the config passed ParseTrainer.
// Batch scaling source: Goyal et al. 2017, arXiv:1706.02677 (linear); Krizhevsky 2014,
// arXiv:1404.5997 (root).
double LearningRateFactor(const LearningRateConfig& config, const LearningRateScaling& scaling);

}  // namespace gyre
