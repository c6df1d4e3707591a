// learning_rate_schedule.h: the learning rate as a pure function of the step and the run's make-up.
#pragma once

#include <cstdint>

#include "models/schema/trainer.pb.h"

namespace gyre {

// The rate of step `step` (from 0) of `total_steps`.  It is constant without a schedule.
//   warm-up   base * (step + 1) / warmup_steps while step < warmup_steps
//   schedule  counted from the end of the warm-up
//   cosine    from total_steps on its final rate, which the run's last step does not quite reach
// `shift` moves cosine on by so many steps of this length, after steps of another length.
// Preconditions: the config passed ParseTrainer, and step >= 0.
// Cosine source: Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts.
double LearningRateAt(const LearningRateConfig& config, int64_t step, int64_t total_steps,
                      double shift = 0);

// The inputs of LearningRateFactor.
struct LearningRateScaling {
  int64_t epoch = 0;           // complete passes over the training data before the step
  int64_t samples_a_step = 1;  // over all ranks and batches
  int ranks = 1;
};

// The product of the factors that the config has.  LearningRateAt times it is the rate of a step,
// also in the warm-up.  Precondition: the config passed ParseTrainer.
//   epoch_decay    epoch_decay^epoch
//   rank_damping   1 / (1 + ranks / rank_damping)
//   batch_scaling  samples_a_step / base_batch, or its square root
// Source: Goyal et al. 2017, arXiv:1706.02677 (linear), Krizhevsky 2014, arXiv:1404.5997 (root).
double LearningRateFactor(const LearningRateConfig& config, const LearningRateScaling& scaling);

}  // namespace gyre
