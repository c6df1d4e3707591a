// fed_run.h: a training run whose batches its caller has, and whose loop is the caller's.  It
// plans, steps and saves as Trainer does.  Prints nothing and keeps no log.  Each rank has one and
// makes the same calls, from one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/training/run/run_plan.h"
#include "engine/training/run/run_state.h"
#include "engine/training/step/training_step.h"

namespace gyre {

class FedRun {
 public:
  // The trainer's data need not be there.  data.test makes testing nets.  Restores or initializes
  // all weights.  The references must outlive the run.
  // Errors: those of RunPlan::Make and of the run's start.  InvalidArgument for what is of data
  // that Gyre reads, such as augmentation, and for a parameter server.  Also for trainable_from
  // without options.out, since a phase begins with a checkpoint.
  static absl::StatusOr<std::unique_ptr<FedRun>> Open(const Parsed<TrainerConfig>& trainer,
                                                      const Parsed<NetConfig>& net, Device& device,
                                                      const Primitives& primitives,
                                                      ProcessGroup& communication,
                                                      TrainingOptions options);

  const NetPlan& train_plan() const { return model_->train().plan(); }  // until Step or Load
  // Samples of a test's batch, over all ranks.
  int64_t test_batch() const { return model_->plan().options.test_batch; }
  int64_t step() const { return state_->step(); }  // steps done

  // Runs an iteration with this rank's samples, arrays of BatchArrays(train_plan()).  Sets all but
  // the arrays.  Returns the step's metrics over all ranks if it is its step's last.
  // Errors: those of TrainingStep, and Internal for a loss that is not finite.  The weights are
  // then unknown, and only Load may follow.
  absl::StatusOr<std::optional<std::vector<Metric>>> Step(Batch& batch);
  // Tests on `samples` samples of the data set, whole batches over all ranks.
  absl::StatusOr<TestResult> Test(const Dataset& dataset, int64_t samples);
  // Writes a checkpoint and waits for it.  Errors: FailedPrecondition without a folder, and in the
  // middle of a step.
  absl::Status Save();
  // Goes on from a checkpoint's folder or, if `path` is empty, from the newest of the run's folder.
  // Errors: those of FindStart, which change nothing.
  absl::Status Load(const std::string& path);
  // Writes weights and texts, by the ending of `path`: .npz, or safetensors.  By rank 0.
  absl::Status Export(const std::string& path);

 private:
  FedRun(std::unique_ptr<RunPlan> plan, TrainingOptions options, Device& device,
         ProcessGroup& communication);
  // Before a phase's first step goes on with its nets, as a run does that stops there and resumes.
  absl::Status EnterPhase();
  // Makes the model of a phase.
  absl::Status CreateModel(int64_t first_step);
  // Of the step's phase.  Valid until CreateModel.
  absl::StatusOr<const ModelPlan*> PlanOf(int64_t step);
  // Of the model, or -1.
  int64_t phase() const { return model_ ? model_->plan().options.shape.first_step() : -1; }
  // Finds the start of these options, and restores it.  Errors: those of FindStart change nothing.
  absl::Status Begin(const TrainingOptions& options);
  // Restores what state_ has found.
  absl::Status Restore();
  absl::Status Ready() const;

  const std::unique_ptr<RunPlan> plan_;  // its nets until the model exists
  const TrainingOptions options_;
  Device& device_;
  ProcessGroup& communication_;
  const std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TrainingStep> training_step_;
  std::unique_ptr<RunState> state_;
  std::vector<double> metrics_;  // {sum, count} each, of the step's finished iterations
  int64_t iterations_ = 0;       // of the step under way
  absl::Status broken_;          // the error after which the weights are unknown
};

}  // namespace gyre
