// trainer.h: the loop of a training run, from parsed files to trained weights.  Prepare plans all
// nets without device memory, and --plan stops there.  Run trains, tests, writes checkpoints and
// returns the weights' digest.  Each rank has one and makes the same calls, from one thread.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/training/feed/bad_samples.h"
#include "engine/training/plan/plan_report.h"
#include "engine/training/run/run_plan.h"
#include "engine/training/run/run_state.h"
#include "engine/training/step/training_step.h"

namespace gyre {

class Trainer {
 public:
  // The references must outlive the run.
  // Errors: those of the files, the data, the plan, and the run's start.
  static absl::StatusOr<std::unique_ptr<Trainer>> Prepare(const Parsed<TrainerConfig>& trainer,
                                                          const Parsed<NetConfig>& net,
                                                          RunData data, Device& device,
                                                          const Primitives& primitives,
                                                          ProcessGroup& communication,
                                                          TrainingOptions options);

  const RunPlan& plan() const { return *plan_; }  // its nets only until Run
  PlanSummary Summary() const { return plan_->Summary(state_->start()); }

  ~Trainer();  // waits for reports in flight

  // Errors: those of the parts, Internal for a non-finite loss or gradient, and Cancelled after a
  // stop, from which the run can resume.  Checkpoints written before an error remain.
  absl::StatusOr<std::string> Run();

 private:
  Trainer(std::unique_ptr<RunPlan> plan, Device& device, ProcessGroup& communication);

  // An iteration.
  struct InFlight {
    int64_t step = 0;                          // number of steps done with it
    std::optional<double> learning_rate = {};  // none: the step has another batch
    Batch batch = {};                          // of a rank that works; empty otherwise
    double waited = 0;                         // seconds, for the batch
    int64_t bad_samples = 0;                   // of the epoch, with it
  };

  struct Report {
    // {sum, count} of each metric, numbers of ranks asked to stop, asked to save, and skipping the
    // step, then RunState's numbers.
    std::vector<double> sums;
    std::vector<Metric> metrics = {};  // of the step's net
    ProcessGroup::Ticket ticket = 0;
    double learning_rate = 0, waited = 0;
    int64_t step = 0;  // the number of steps done with it
    int64_t bad_samples = 0;
    std::optional<LossScaleState> loss_scale = {};
  };

  // Makes the model of the plan's phase, and restores it.
  absl::Status CreateModel();
  // Begins a step's work anew with the state's or this loss scale.
  absl::Status CreateStep(const std::optional<LossScaleState>& loss_scale);
  // Goes on with the nets of the next step's player, once the last one's steps are finished.
  absl::Status TakeTurn();
  // Goes on with the nets of the next phase as a run does that stops here and resumes.
  absl::Status EnterPhase();
  double LearningRate(int64_t step) const {
    return plan_->length.LearningRate(step, options().shape.workers());
  }
  // The net of the player whose turn a step is.
  const Model::TurnNets& NetsOf(int64_t step) const {
    return model_->turn(options().shape.TurnAt(step).player);
  }
  void Time();
  absl::Status ReportPaging();
  // Says how long steps waited for samples that are decoded as they are read.
  void ReportWaits();
  // Tells of samples that weigh 0, or of those that end the run.
  void TellOf(const std::vector<std::string>& faults, bool ends) const;
  absl::Status Loop();
  absl::Status RunStep();
  // The step's batch of this number, of a rank that works.  Counts bad samples, those of all ranks
  // if they step together.
  absl::Status TakeBatch(int64_t number, InFlight& iteration);
  absl::Status EndByBadSamples(bool step_has_begun);
  absl::Status BadStatus() const;
  absl::Status StartIteration(InFlight iteration);
  absl::Status FinishIteration();
  absl::Status FinishBatch(const InFlight& iteration);
  void ReportReplay();
  absl::Status FinishStarted();
  absl::Status FinishAll();
  absl::Status FirstError(const absl::Status& status);
  absl::Status PlanPagesAnew(std::span<const double> step_seconds);
  void SubmitReport(const InFlight& last);
  absl::Status CollectReports(size_t left);
  absl::Status Take(Report report);
  absl::Status Test();
  absl::Status Save();
  // What log_norms_every writes: RememberValues before a step, LogNorms after it.
  absl::Status RememberValues();
  absl::Status LogNorms();
  const ModelOptions& options() const { return model_->plan().options; }
  bool works() const { return options().shape.works(); }
  bool Due(int64_t every) const { return plan_->length.IsDue(every, state_->step()); }
  bool TestIsDue() const { return Due(plan_->config.evaluate_every()); }
  bool SaveIsDue() const {
    return state_->step() == save_at_ || Due(plan_->config.checkpoint_every());
  }

  const std::unique_ptr<RunPlan> plan_;  // its nets until the model exists
  Device& device_;
  ProcessGroup& communication_;
  const std::unique_ptr<Optimizer> optimizer_;

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;  // of the phase
  std::unique_ptr<BatchLoader> loader_;
  std::vector<std::unique_ptr<TrainingStep>> training_steps_;  // by player, of the members above
  TrainingStep* training_step_ = nullptr;                      // of the last step's player
  std::optional<RunState> state_;  // after the model, which it may be saving

  // The step after which all ranks do as a rank was asked, or -1.
  int64_t stop_at_ = -1, save_at_ = -1;
  bool agreed_ = false;    // all ranks end with the same error, at the same point
  bool reported_ = false;  // the log says whether steps are replayed
  int64_t updates_ = 0;    // started in this process
  // Measured iterations if nets page, and the start of the next one's time and stalls.
  PagedIterations paged_;
  int64_t finished_ = 0;
  std::optional<std::chrono::steady_clock::time_point> since_;
  double stalled_since_ = 0;
  std::deque<InFlight> in_flight_;  // those of training_step_, and of a rank that serves likewise
  std::vector<double> metrics_;     // {sum, count} each, of the step's finished iterations
  double waited_ = 0;               // likewise: seconds for batches
  BadSamples bad_{0, 0}, bad_of_tests_{0, 0};  // of the run that has begun
  double stepped_seconds_ = 0;                 // of this process's steps
  std::map<std::string, std::vector<std::vector<std::byte>>> values_before_;  // slices, on rank 0
  // The report of a finished step travels while the next step runs.
  std::deque<Report> reports_;  // in flight, in order of steps
  size_t reports_left_ = 0;     // reports that may stay in flight when a step is done
};

}  // namespace gyre
