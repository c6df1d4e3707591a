// training_options.h: what a run is told beside its files.  A value.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "engine/data/sets/fit.h"
#include "engine/training/model/model.h"

namespace gyre {

struct TrainingOptions {
  std::string out;          // folder for metrics.jsonl and checkpoints/
  std::string resume;       // "", "latest", "auto" (that, or to begin), or a checkpoint's folder
  std::string weights;      // "", or what to start from, for ReadWeights
  std::string weights_map;  // as MatchWeights takes it
  std::string net_text, trainer_text;                     // as parsed, for checkpoints
  std::map<std::string, std::string> choices = {};        // what changes bits: threads, ranks, ...
  std::map<std::string, std::string> older_choices = {};  // some, as checkpoints before said them
  PlannerKind planner = PlannerKind::kAuto;               // of what the device does not hold
  size_t host_bytes = ~size_t{0};  // for that on a rank; beyond it lies on disk
  std::string page_folder = {};    // in a file there
  int threads = 1;                 // of what is done on the host beside a device
  bool largest_batch = false;      // in place of the trainer's: FindLargestBatch's, of all ranks
  // Calls what prepares the operations of a plan, in one order on all ranks, and measures them, for
  // plans that follow: CudaTuner::Tune.  Null: nothing is measured.
  std::function<absl::Status(const std::function<absl::Status()>& prepare)> tune = nullptr;
  std::optional<Fit> fit = {};              // of the data; nothing: they are assumed
  const std::atomic<bool>* stop = nullptr;  // set: checkpoint in a few steps, return Cancelled
  std::atomic<bool>* save = nullptr;        // set: checkpoint and go on; it is cleared
};

}  // namespace gyre
