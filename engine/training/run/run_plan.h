// run_plan.h: a run before it begins.  Its nets are planned, its data are checked, and all ranks
// agree on both.  --plan prints it.  Allocates no device memory.  Used by one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/training/feed/data_feed.h"
#include "engine/training/plan/plan_summary.h"
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

  PlanSummary Summary(const Parsed<NetConfig>& net, const RunStart& start) const;
  // Text for people: offsets and stays of states, paging, and the cost of other memory sizes and
  // precisions.
  std::string DescribeDetails(const PlanSummary& plan) const;
  // Text for people as a run begins: ranks, device, sync, samples, parameters.
  std::string DescribeStart(const Parsed<NetConfig>& net) const;

  const TrainerConfig config;  // with the batch chosen
  const RunData data;
  ModelPlan nets;
  RunLength length;
  std::vector<std::string> warnings = {};  // of Lint, LintData and PaddingWarnings
  const std::string batch_text;            // the number of samples, if chosen here

 private:
  RunPlan(TrainerConfig config_of_run, RunData data_of_run, ModelPlan nets_of_run,
          std::string batch, Device& device, ProcessGroup& communication);

  // Also adds to the warnings.
  absl::Status Agree(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net,
                     const Primitives& primitives, TrainingOptions& options);
  absl::StatusOr<DataLook> LookAt(const Dataset& dataset, const NetPlan& net,
                                  const std::string& what) const;
  std::string DescribeSync() const;
  absl::Status CheckServer(const Parsed<TrainerConfig>& trainer) const;
  // Also adds to the warnings.
  absl::Status CheckSequences(const Parsed<NetConfig>& net);

  Device& device_;
  ProcessGroup& communication_;
};

}  // namespace gyre
