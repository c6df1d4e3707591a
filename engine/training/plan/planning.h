// planning.h: what the nets of a run are planned with, from its files, its data and its device; and
// the batch, where the device's memory is to choose it.  Allocates no device memory.
#pragma once

#include <string>

#include "engine/training/feed/data_feed.h"
#include "engine/training/model/model.h"
#include "engine/training/plan/largest_batch.h"

namespace gyre {

// All arguments must outlive it.
struct Planning {
  const Parsed<NetConfig>& net;
  const RunData& data;
  const Device& device;
  const Primitives& primitives;
  ProcessGroup& communication;  // of several ranks: its UseDevice has been called
  PlannerKind planner;
  size_t host_bytes;
  const std::string& page_folder;
  int threads;

  // All ranks call it.  Errors: those of PlanModel; on all ranks where one's memory lacks, with the
  // largest batch that fits all, and kAuto's if that is larger, or with the test's batch where that
  // does not fit, and what else would do; those of ranks.
  absl::StatusOr<ModelPlan> Plan(const TrainerConfig& config) const;

  // Prepares the operations of the plan, the same on all ranks, and plans for no device's memory.
  // Errors: those of PlanModel.
  absl::Status PrepareAll(const TrainerConfig& config) const;

  // Sets config's batch to the largest with which nothing is paged on any rank; where there is
  // none, to the largest that fits.  No batch is larger than the data.  All ranks call it.  Returns
  // a line for people.  Errors: InvalidArgument on a CPU, whose memory has no bound; those of
  // FindLargestBatch and of ranks.
  absl::StatusOr<std::string> ChooseBatch(TrainerConfig& config) const;

 private:
  ModelOptions OptionsOf(const TrainerConfig& config) const;
  // Of all ranks; test: beside the testing nets.
  absl::StatusOr<LargestBatch> Largest(const TrainerConfig& config, bool test) const;
  absl::StatusOr<std::string> Advice(const TrainerConfig& config,
                                     const ModelOptions& options) const;
  absl::StatusOr<int> Count(bool here) const;  // ranks where it is so
  absl::StatusOr<bool> FitsAll(bool here) const;
};

}  // namespace gyre
