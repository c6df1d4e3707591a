// run_start.h: what a run starts from: first values, tensors of a file, or a checkpoint.  It is
// found, read and checked against the plan before the device's memory is taken, so that --plan says
// what a run would say.
//
// Every rank makes the call, on the thread that talks to the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/model/weights_match.h"
#include "engine/training/run/training_options.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

struct RunStart {
  // At most one of them; neither: first values.
  std::optional<WeightsMatch> weights;
  std::optional<Checkpoint> checkpoint;
  std::string path;                   // where they are
  bool resumed = false;               // from a checkpoint, also once it is no longer held
  int64_t step = 0, position = 0;     // of it
  int64_t newest = -1;                // the step of the newest checkpoint in --out
  bool continues = false;             // the run that --out holds
  std::string received;               // a folder that was sent to a rank that keeps none
  std::vector<std::string> warnings;  // for people
};

// Whether the newest checkpoint of --out is asked for, if there is one.
inline bool TakesNewest(const TrainingOptions& options) {
  return options.resume == "latest" || options.resume == "auto";
}

// keeps: whether this rank writes files of checkpoints.  Where ranks have several folders, a
// checkpoint to go on from is first made whole in each (GatherCheckpoint).
// Errors: InvalidArgument for flags that exclude each other; those of ReadWeights, MatchWeights,
// LoadCheckpoint, CheckLoad and CheckOut; what was made with another seed, net or fit.
absl::StatusOr<RunStart> FindStart(const TrainerConfig& config, const TrainingOptions& options,
                                   const ModelPlan& plan, ProcessGroup& communication, bool keeps);

// newest: the step of the newest checkpoint in --out, -1 if there is none.  Errors: AlreadyExists
// for one that a run from `step` on would hide.
absl::Status CheckOut(const TrainingOptions& options, int64_t newest, int64_t step);

// For people, such as "goes on from step 200 of runs/a/checkpoints/step_00000200"; "" for first
// values.
std::string DescribeStart(const RunStart& start);

}  // namespace gyre
