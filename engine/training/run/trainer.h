// trainer.h: the loop of a training run, from parsed files to trained weights.  Prepare plans
// every net without allocating device memory (--plan stops there); Run trains, writes checkpoints,
// tests, and returns the weights' digest.  Every rank makes one and makes the
// same calls, all from one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/training/feed/data_feed.h"
#include "engine/training/plan/plan_report.h"
#include "engine/training/plan/plan_summary.h"
#include "engine/training/run/run_length.h"
#include "engine/training/run/run_state.h"
#include "engine/training/step/training_step.h"

namespace gyre {

class Trainer {
 public:
  // The parsed files, device, primitives and communication must outlive the run.
  // Errors: those of the files, the data, the plan, and what the run starts from.
  static absl::StatusOr<std::unique_ptr<Trainer>> Prepare(const Parsed<TrainerConfig>& trainer,
                                                          const Parsed<NetConfig>& net,
                                                          RunData data, Device& device,
                                                          const Primitives& primitives,
                                                          ProcessGroup& communication,
                                                          TrainingOptions options);

  // Layers, memory, steps, bytes communicated a step; what is likely a mistake.
  PlanSummary Plan(const Parsed<NetConfig>& net) const;
  // For people: where states lie and when, what moves, what less memory and other precisions cost.
  std::string DescribeDetails(const PlanSummary& plan) const;
  // Likewise, in lines of what the run is about to do: ranks, device, sync, samples, parameters.
  std::string DescribeStart(const Parsed<NetConfig>& net) const;
  // The training net's iteration as an SVG image, or as a page of HTML with `below` under it.
  std::string DrawPlan(const Parsed<NetConfig>& net, bool page, const std::string& below) const;

  ~Trainer();  // waits for the report under way

  // Errors: those of Prepare's parts; Internal for a loss or gradient that is not finite; Cancelled
  // after a stop, when the run can be resumed.  Checkpoints written before an error stand.
  absl::StatusOr<std::string> Run();

 private:
  // The steps in flight hold theirs; one more is ready, and one is being read.
  static constexpr int kBatches = kMostStepsInFlight + 2;

  Trainer(TrainerConfig config, Device& device, ProcessGroup& communication, RunData data);

  // An iteration.
  struct InFlight {
    Batch batch;
    std::optional<double> learning_rate;  // none: another batch of its step follows
    int64_t step = 0;                     // the number of steps done with it
  };

  struct Report {
    // {sum, count} a metric; then the numbers of ranks asked to stop, to save, that skip the step;
    // what RunState tells.
    std::vector<double> sums;
    size_t metrics = 0;  // numbers of them
    ProcessGroup::Ticket ticket = 0;
    double learning_rate = 0;
    int64_t step = 0;  // the number of steps done with it
    std::optional<LossScaleState> loss_scale = {};
  };

  absl::Status PlanNets(const Parsed<NetConfig>& net, const Primitives& primitives,
                        const TrainingOptions& options);
  absl::Status Agree(const Parsed<NetConfig>& net, const Primitives& primitives,
                     TrainingOptions& options);
  absl::StatusOr<std::string> LookAt(const Dataset& dataset, const NetPlan& net,
                                     const std::string& what) const;
  std::string DescribeSync() const;
  absl::Status CheckServer(const Parsed<TrainerConfig>& trainer) const;
  // Also adds to the warnings.
  absl::Status CheckSequences(const Parsed<NetConfig>& net);
  absl::Status CreateModel();
  double LearningRate(int64_t step) const;
  void Time();
  absl::Status TellHowPagingWent();
  absl::Status Loop();
  absl::Status RunStep();
  absl::Status ServeStep();
  absl::Status StartIteration(bool update);
  absl::Status FinishIteration();
  void TellHowStepsRun();
  absl::Status FinishAll();
  absl::Status FirstError(const absl::Status& status);
  absl::Status PlanPagesAnew(std::span<const double> step_seconds);
  void SubmitReport(const InFlight& last);
  absl::Status CollectReports(size_t left);
  absl::Status Take(const Report& report);
  absl::Status Test();
  absl::Status Save();
  // What has gone wrong with data leaves the state of the last step sound: one rank, which can do
  // so alone, saves it.
  absl::Status SaveFirst(const absl::Status& status);
  bool Due(int64_t every) const { return length_.IsDue(every, state_->step()); }

  const TrainerConfig config_;
  Device& device_;
  ProcessGroup& communication_;
  const RunData data_;
  const std::unique_ptr<Optimizer> optimizer_;
  RunLength length_;
  const int64_t test_every_, save_every_;  // steps; 0: each epoch
  std::optional<ModelPlan> plan_;          // until the model is made of it
  std::vector<std::string> warnings_;      // of Lint and PaddingWarnings
  std::string batch_text_;  // how many samples a batch has, where that was chosen here

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<TrainingStep> training_step_;  // after what its steps touch
  std::optional<RunState> state_;                // after the model, which it may be writing

  const std::atomic<bool>* asked_to_stop_ = nullptr;
  std::atomic<bool>* asked_to_save_ = nullptr;
  // After which step all ranks do what some rank was asked to; -1: none was.
  int64_t stop_at_ = -1, save_at_ = -1;
  bool agreed_ = false;  // all ranks end with the same error, at the same point
  bool told_ = false;    // whether steps are replayed
  int64_t updates_ = 0;  // of this run: started
  // Of a run that pages: its iterations; and since when the next one's time and stalls count.
  PagedIterations paged_;
  int64_t finished_ = 0;
  std::optional<std::chrono::steady_clock::time_point> since_;
  double stalled_since_ = 0;
  std::deque<InFlight> in_flight_;  // as training_step_ has them
  std::vector<double> metrics_;     // {sum, count} each, of a step's iterations that are finished
  // The report of the latest step finished travels while the next one runs.
  std::deque<Report> reports_;  // that ranks tell each other, of steps in order
  size_t reports_left_ = 0;     // how many may be under way when a step is done
};

}  // namespace gyre
