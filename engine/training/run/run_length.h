// run_length.h: how long a run is and where it is, in steps and in samples.  A run of `epochs` is
// as long as its samples, whatever number of steps they take: where it goes on with another batch,
// the steps that are left are counted anew, and those before stay as they were.
//
// Plain numbers; used by one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

class RunLength {
 public:
  // Of a run from the beginning.  config: that has passed ParseTrainer; it must outlive this.
  // epoch_samples: positions of the order, of a pass over the data.
  RunLength(const TrainerConfig& config, int64_t epoch_samples);

  // Of one that goes on after `step` steps, of `position` samples.  Errors: InvalidArgument if that
  // is beyond its end, by a step or more.
  absl::Status GoOnFrom(int64_t step, int64_t position);

  int64_t total_steps() const { return total_steps_; }
  // Passes over the data that are done after `step` steps.
  double EpochsAt(int64_t step) const;
  // Of the step after `step` steps, with all factors; the ranks that train are `workers`.
  double LearningRate(int64_t step, int workers) const;
  // Whether what happens every so many steps does after `step`: at the end, too; every 0: after the
  // step by which an epoch is done.
  bool IsDue(int64_t every, int64_t step) const;

 private:
  int64_t PositionAt(int64_t step) const { return first_position_ + step * step_samples_; }
  double SamplesInAll() const;  // of epochs, which are a decimal: an integer if it stands for one
  int64_t StepsInAll() const;

  const TrainerConfig& config_;
  const int64_t epoch_samples_, step_samples_;
  int64_t first_position_ = 0;  // of step 0, if all steps had been as long as this run's
  int64_t total_steps_;
};

}  // namespace gyre
