// planning.h: what the nets of a run are planned with, from its files, its data and its device; and
// the batch, where the device's memory is to choose it.  Allocates no device memory.
#pragma once

#include <string>

#include "engine/training/data_feed.h"
#include "engine/training/largest_batch.h"
#include "engine/training/model.h"

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

  // Errors: those of PlanModel; where memory lacks, with the largest batch that fits, and
  // kAuto's if that is larger.
  absl::StatusOr<ModelPlan> Plan(const TrainerConfig& config) const;

  // Sets config's batch to the largest with which nothing is paged on any rank; where there is
  // none, to the largest that fits.  No batch is larger than the data.  All ranks call it.  Returns
  // a line for people.  Errors: InvalidArgument on a CPU, whose memory has no bound; those of
  // FindLargestBatch and of ranks.
  absl::StatusOr<std::string> ChooseBatch(TrainerConfig& config) const;

 private:
  ModelOptions OptionsOf(const TrainerConfig& config) const;
  absl::StatusOr<LargestBatch> Largest(const TrainerConfig& config) const;
};

}  // namespace gyre
