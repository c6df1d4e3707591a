// trainer.h: a training run, from parsed files to trained weights.  Prepare opens the data and
// plans every net without allocating device memory (--plan stops there); Run trains, tests, writes
// checkpoints, and returns the weights' digest.  Every rank makes one and makes the same calls, all
// from one thread.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/folder_lock.h"
#include "engine/training/checkpoint.h"
#include "engine/training/evaluation.h"
#include "engine/training/run_log.h"
#include "engine/training/step/training_step.h"

namespace gyre {

struct TrainingOptions {
  std::string out;                             // folder for metrics.jsonl and checkpoints/
  std::string resume;                          // "", "latest", or a checkpoint's folder
  std::string weights;                         // "", or a safetensors file to start from
  std::string net_text, trainer_text;          // as parsed, for checkpoints
  std::map<std::string, std::string> choices;  // what changes bits: threads, ranks, ...
  const std::atomic<bool>* stop = nullptr;     // set: finish the step, checkpoint, return Cancelled
};

class TrainingRun {
 public:
  // The parsed files, device, primitives and communication must outlive the run.
  // Errors: those of the files, the data, and the plan.
  static absl::StatusOr<std::unique_ptr<TrainingRun>> Prepare(
      const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net, Device& device,
      const Primitives& primitives, CommunicationThread& communication, TrainingOptions options);

  // For people: layers, memory, steps, bytes communicated a step.
  std::string DescribePlan() const;

  // Errors: those of Prepare's parts; Internal for a loss or gradient that is not finite; Cancelled
  // after a stop, when the run can be resumed.  Checkpoints written before an error stand.
  absl::StatusOr<std::string> Run();

 private:
  TrainingRun(const Parsed<TrainerConfig>& trainer, Device& device,
              CommunicationThread& communication, TrainingOptions options)
      : trainer_(trainer),
        config_(*trainer.message),
        device_(device),
        communication_(communication),
        options_(std::move(options)) {}

  struct InFlight {
    Batch batch;
    double learning_rate = 0;
    int64_t step = 0;  // the number of steps done with it
  };

  absl::Status OpenData(const Parsed<NetConfig>& net);
  absl::Status CreateModel();
  absl::Status OpenOutput();
  absl::Status Restore();
  absl::Status SetWeights();
  absl::Status RestoreFrom(const Checkpoint& checkpoint);
  absl::Status Loop();
  absl::Status StartStep();
  absl::Status FinishStep();
  absl::Status FinishAll();
  void SubmitReport(const Tensor& metrics, const InFlight& step);
  absl::Status CollectReport();
  absl::Status Test();
  absl::Status Save();
  void Say(const std::string& line);
  bool leader() const { return communication_.rank() == 0; }

  const Parsed<TrainerConfig>& trainer_;
  const TrainerConfig& config_;
  Device& device_;
  CommunicationThread& communication_;
  TrainingOptions options_;

  std::unique_ptr<Dataset> train_data_, test_data_;
  InputMap inputs_;
  std::unique_ptr<Optimizer> optimizer_;
  int64_t total_steps_ = 0, test_every_ = 0, save_every_ = 0;
  std::optional<ModelPlan> plan_;  // until the model is made of it

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<TrainingStep> training_step_;  // after what its steps touch
  std::optional<CheckpointStore> checkpoints_;   // leader
  FolderLock lock_;                              // leader; of options_.out
  std::unique_ptr<RunLog> log_;                  // leader

  int64_t step_ = 0;      // steps started
  int64_t position_ = 0;  // samples consumed
  int64_t saved_step_ = -1;
  bool stop_ = false;               // some rank was asked to stop
  bool warned_ = false;             // that steps cannot be replayed
  std::deque<InFlight> in_flight_;  // as training_step_ has them
  // The report of the latest step finished travels while the next one runs.
  struct Report {
    std::vector<double> sums;  // {sum, count} a metric, then the number of ranks asked to stop
    CommunicationThread::Ticket ticket = 0;
    double learning_rate = 0;
    int64_t step = 0;  // the number of steps done with it
  };
  std::optional<Report> report_;
};

}  // namespace gyre
