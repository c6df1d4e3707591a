// planning.h: plans a run's nets from its files, data and device, and chooses the batch if the
// device's memory is to decide it.  Allocates no device memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "distributed/process_group.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/model/model_plan.h"

namespace gyre {

struct LargestBatch {
  int64_t resident = 0;  // all states fit on the device at all times
  int64_t paged = 0;     // paging makes it fit; `resident` if the planner is kNone
};

// Whether a batch fits on all ranks.  Each rank says whether it fits its own memory.
using AskAll = std::function<absl::StatusOr<bool>(bool fits)>;

// Searches batches of `least` to `most` samples over all ranks.  Returns least - 1 if none fits.
// `options` are those of a run with such a batch.  Every rank calls it and tries the same batches.
// Errors: those of PlanModel for `least`, except for memory, and those of ask_all.
absl::StatusOr<LargestBatch> FindLargestBatch(
    const Parsed<NetConfig>& net, const std::function<ModelOptions(int64_t batch)>& options,
    int64_t least, int64_t most, const AskAll& ask_all = [](bool fits) { return fits; });

// All arguments must outlive it.
struct Planning {
  const Parsed<NetConfig>& net;
  const RunData& data;
  const Device& device;
  const Primitives& primitives;
  ProcessGroup& communication;  // with several ranks, after UseDevice
  PagingOptions pages;
  int64_t first_step = 0;  // of the phase (engine/training/trainable_from.h)

  // Every rank calls it.  Errors: those of PlanModel and of the process group.
  // If one rank's memory is too small, all ranks return ResourceExhausted.  Its advice is a smaller
  // test batch if training alone fits, else the largest batch, also of kAuto, and other options.
  absl::StatusOr<ModelPlan> Plan(const TrainerConfig& config) const;

  // Prepares the plan's operations, the same on all ranks, for a device of unlimited memory.
  // Errors: those of PlanModel.
  absl::Status PrepareAll(const TrainerConfig& config) const;

  // Sets config's batch to the largest resident one on all ranks, or else to the largest that fits.
  // It is at most the data's size.  Every rank calls it.  Returns a line for people.
  // Errors: InvalidArgument on a CPU, whose memory has no bound, and those of FindLargestBatch.
  absl::StatusOr<std::string> ChooseBatch(TrainerConfig& config) const;

 private:
  ModelOptions OptionsOf(const TrainerConfig& config) const;
  // Over all ranks, with `test` beside the testing nets.
  absl::StatusOr<LargestBatch> Largest(const TrainerConfig& config, bool test) const;
  absl::StatusOr<std::string> Advice(const TrainerConfig& config,
                                     const ModelOptions& options) const;
  // Whether it fits on every rank.  Each says whether it fits here.
  absl::StatusOr<bool> FitsAll(bool here) const;
};

}  // namespace gyre
