// run_plan.h: a run before it begins.  Its nets are planned, its data are checked, and all ranks
// agree on both.  --plan prints it.  Allocates no device memory.  Used by one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/training/feed/data_feed.h"
#include "engine/training/plan/plan_summary.h"
#include "engine/training/plan/planning.h"
#include "engine/training/run/run_length.h"
#include "engine/training/run/run_start.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// Batches in host memory: one for each step in flight, one that is ready, and one that is being
// read.
inline constexpr int kBatchesHeld = kMostStepsInFlight + 2;

struct RunPlan {
  // Every rank calls it.  Chooses the batch if the options leave it to the device.  Adds to
  // `options` what checkpoints record of choices, and the fit.  References outlive the result.
  // Errors: those of the files' numbers, the data, the plan and other ranks.
  static absl::StatusOr<std::unique_ptr<RunPlan>> Make(const Parsed<TrainerConfig>& trainer,
                                                       const Parsed<NetConfig>& net, RunData data,
                                                       Device& device, const Primitives& primitives,
                                                       ProcessGroup& communication,
                                                       TrainingOptions& options);

  // A run has a phase from step 0 on, and one from each step at which more parameters begin to
  // train (engine/training/trainable_from.h).  Each phase has nets of its own.

  // The first step of the phase in which this step is done.
  int64_t PhaseOf(int64_t step) const;
  bool Begins(int64_t step) const { return step > 0 && PhaseOf(step) == step; }
  // Plans all phases that begin before step `end`.  Makes `options` and errors as Make does.
  absl::Status PlanPhases(int64_t end, TrainingOptions& options);
  // The plan of a phase, by its first step.  Plans it if it is not there.  Valid until UsePhase.
  absl::StatusOr<const ModelPlan*> PlanOf(int64_t first_step);
  // Makes it `nets`.
  absl::Status UsePhase(int64_t first_step);
  // Makes the file of `nets`, if pages are on disk, and sees that those of later phases have room.
  absl::Status OpenPages();
  // For people: "step 500: conv1.bias, conv1.weight train from now on: 520 of 1000 parameters".
  // Precondition: `nets` is the plan of the phase that begins there.
  std::string DescribePhase() const;

  PlanSummary Summary(const RunStart& start) const;
  // Text for people: offsets and stays of states, paging, and the cost of other memory sizes and
  // precisions.
  std::string DescribeDetails(const PlanSummary& plan) const;
  // Text for people as a run begins: ranks, device, sync, samples, parameters.
  std::string DescribeStart() const;

  const TrainerConfig config;  // with the batch chosen
  const RunData data;
  ModelPlan nets;  // of the phase in which the run is or begins.  Empty once it has a model
  RunLength length;
  std::vector<std::string> warnings = {};  // of Lint, LintData and PaddingWarnings
  const std::string batch_text;            // the number of samples, if chosen here

 private:
  RunPlan(TrainerConfig config_of_run, RunData data_of_run, ModelPlan nets_of_run,
          std::string batch, const Parsed<TrainerConfig>& trainer, const Planning& planning);

  // Also adds to the warnings.
  absl::Status Agree(TrainingOptions& options);
  // What ranks agree on of a phase's nets, and what checkpoints record of it.
  absl::Status AgreeOn(const ModelPlan& nets_of_phase, TrainingOptions& options) const;
  absl::StatusOr<ModelPlan> PlanPhase(int64_t first_step) const;
  PlanSummary::Bytes BytesOf(const ModelPlan& nets_of_phase) const;
  PlanSummary::Communication CommunicationOf(const ModelPlan& nets_of_phase) const;
  void WarnOfLatePhases();
  absl::StatusOr<DataLook> LookAt(const Dataset& dataset, const NetPlan& net,
                                  const std::string& what) const;
  std::string DescribeSync() const;
  BytesOfSum bytes_of_sum() const {
    return [this](size_t bytes, DType dtype) { return communication_.BytesSent(bytes, dtype); };
  }
  std::string DescribeFrozen() const;
  std::string DescribePlayers() const;
  absl::Status CheckServer(const ModelPlan& nets_of_phase) const;
  // Also adds to the warnings.
  absl::Status CheckSequences();

  const Parsed<TrainerConfig>& trainer_;
  const Parsed<NetConfig>& net_;
  const Device& device_;
  const Primitives& primitives_;
  ProcessGroup& communication_;
  const PagingOptions pages_;
  const std::vector<int64_t> phases_;    // first steps, ascending
  std::map<int64_t, ModelPlan> others_;  // by first step: planned phases beside `nets`
};

}  // namespace gyre
