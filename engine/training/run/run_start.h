// run_start.h: the start of a run, from first values, tensors of a file, or a checkpoint.  It is
// found, read and checked against the plan before device memory is allocated.  So --plan reports
// the run's errors.  Every rank calls it, on its communication thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "engine/data/sets/fit.h"
#include "engine/runtime/device/device.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/model/model_plan.h"
#include "engine/training/model/weights_match.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// The options of a run beside its files.
struct TrainingOptions {
  std::string out;          // folder for metrics.jsonl and checkpoints/
  std::string resume;       // "", "latest", "auto" (latest or a new run), or a checkpoint's folder
  std::string weights;      // "", or initial weights for ReadWeights
  std::string weights_map;  // for MatchWeights
  bool weights_partial = false;
  std::string net_text, trainer_text;               // as parsed, for checkpoints
  std::string trainer_file = {};                    // its path, for checkpoints
  std::map<std::string, std::string> choices = {};  // they change bits: threads, ranks, ...
  PagingOptions pages = {};
  bool largest_batch = false;  // replaces the trainer's batch by FindLargestBatch's
  // CudaTuner::Tune.  Calls `prepare`, which prepares the operations of a plan, in one order on all
  // ranks, and measures them for later plans.  Null: nothing is measured.
  std::function<absl::Status(const std::function<absl::Status()>& prepare)> tune = nullptr;
  bool quiet = false;                       // RunState prints nothing, and keeps no log
  std::optional<Fit> fit = {};              // of the data; nullopt: they are assumed
  const std::atomic<bool>* stop = nullptr;  // set: checkpoint in a few steps, return Cancelled
  std::atomic<bool>* save = nullptr;        // set: checkpoint, clear it and go on
};

struct RunStart {
  // At most one of them.
  std::optional<WeightsMatch> weights;
  std::optional<Checkpoint> checkpoint;
  std::string path;                   // of the file or checkpoint
  bool averages = false;              // weights are averages of those of their run
  bool resumed = false;               // from a checkpoint, even if that is no longer in memory
  int64_t step = 0, position = 0;     // of the checkpoint
  int64_t newest = -1;                // step of the newest checkpoint in --out
  bool continues = false;             // continues the run in --out
  std::string received;               // folder sent to a rank that stores no checkpoints
  std::vector<std::string> warnings;  // for people
};

// Whether a run may start from the newest checkpoint of --out.
inline bool TakesNewest(const TrainingOptions& options) {
  return options.resume == "latest" || options.resume == "auto";
}

// Lets a resumed run whose trainer names no allreduce sum by that of its checkpoint.  Each rank
// looks in its own folder, and ranks without a checkpoint follow the others.  Blocks. Precondition:
// that of ProcessGroup::UseAllreduce.  Errors: those of Sum and UseAllreduce.
absl::Status KeepAllreduce(const TrainerConfig& config, const TrainingOptions& options,
                           DeviceKind device, ProcessGroup& communication);

// For OpenData: the normalization of the run to resume or of --weights, or {}.  Its own data may be
// others, but its weights take inputs normalized as before.  Rank 0 looks and tells the other
// ranks. Blocks.  Errors: those of TextOfLeader.
absl::StatusOr<Fit> NormalizationOfStart(const TrainerConfig& config,
                                         const TrainingOptions& options,
                                         ProcessGroup& communication);

// The plan of the phase of a step.
using PlanOfStep = std::function<absl::StatusOr<const ModelPlan*>(int64_t step)>;

// `keeps` tells whether this rank writes files of checkpoints.  If ranks have several folders, the
// checkpoint to resume from is first made whole in each (GatherCheckpoint).
// Errors: InvalidArgument for flags that exclude each other, and for another seed, net or fit.  The
// net may have another trainable_from where none of the steps done depends on it.
// Also those of ReadWeights, MatchWeights, LoadCheckpoint, CheckLoad, CheckOut and `plan_of`.
absl::StatusOr<RunStart> FindStart(const TrainerConfig& config, const TrainingOptions& options,
                                   const PlanOfStep& plan_of, ProcessGroup& communication,
                                   bool keeps);

// The start of the phase at `step`, from the checkpoint that this run has saved there.
absl::StatusOr<RunStart> FindSaved(const TrainerConfig& config, const TrainingOptions& options,
                                   const ModelPlan& plan, int64_t step, ProcessGroup& communication,
                                   bool keeps);

// `newest` is the step of the newest checkpoint in --out, or -1.
// Errors: AlreadyExists if a run from `step` on would hide it.
absl::Status CheckOut(const TrainingOptions& options, int64_t newest, int64_t step);

// Text for people, such as "goes on from step 200 of runs/a/checkpoints/step_00000200", or "" for
// first values.
std::string DescribeStart(const RunStart& start);

}  // namespace gyre
