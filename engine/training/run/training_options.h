// training_options.h: the options of a run beside its files.  A value.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "engine/data/sets/fit.h"
#include "engine/training/model/model_plan.h"

namespace gyre {

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

}  // namespace gyre
