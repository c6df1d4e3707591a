// run_length.h: the length of a run and its position, in steps and samples.  A run of `epochs` has
// a fixed number of samples.  If it resumes with another batch, the remaining steps are recounted.
// The learning rate is a function of the position and the run's make-up.  Used by one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

class RunLength {
 public:
  // For a run from the beginning.  `epoch_samples` are the positions of a pass over the data.
  // `config` has passed ParseTrainer and must outlive this.
  RunLength(const TrainerConfig& config, int64_t epoch_samples);

  // Resumes after `step` steps and `position` samples.  Errors: InvalidArgument if that is beyond
  // the end by a step or more.
  absl::Status GoOnFrom(int64_t step, int64_t position);

  int64_t total_steps() const { return total_steps_; }
  // Positions of a pass over the data or, if that is shorter, of a run from the beginning.
  int64_t epoch_samples() const { return std::min(epoch_samples_, total_steps_ * step_samples_); }
  // Passes over the data, done after `step` steps.
  double EpochsAt(int64_t step) const;
  // The pass that the sample at `position` of the endless order is of.
  int64_t EpochOf(int64_t position) const { return position / epoch_samples_; }
  // The rate of the step after `step` steps, for `workers` ranks that train: the schedule's times
  // all factors that the config has.  It is constant without a schedule.  Precondition: step >= 0.
  //   warm-up        base * (step + 1) / warmup_steps while step < warmup_steps
  //   schedule       counted from the end of the warm-up
  //   cosine         from total_steps on its final rate, which the last step does not quite reach
  //   epoch_decay    epoch_decay^epoch, of complete passes over the data before the step
  //   rank_damping   1 / (1 + workers / rank_damping)
  //   batch_scaling  samples of a step / base_batch, or its square root
  // Sources: Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts (cosine), Goyal et al.
  // 2017, arXiv:1706.02677 (linear), Krizhevsky 2014, arXiv:1404.5997 (root).
  double LearningRate(int64_t step, int workers) const;
  // Whether an event of every `every` steps is due after `step`.  It also is at the end.  With
  // every == 0 it is due after the step that completes an epoch.
  bool IsDue(int64_t every, int64_t step) const;

 private:
  int64_t PositionAt(int64_t step) const { return first_position_ + step * step_samples_; }
  double SamplesInAll() const;  // of `epochs`, a decimal; an integer if it stands for one
  int64_t StepsInAll() const;

  const TrainerConfig& config_;
  const int64_t epoch_samples_, step_samples_;
  int64_t first_position_ = 0;  // of step 0, as if all steps had this run's length
  int64_t total_steps_;
};

}  // namespace gyre
