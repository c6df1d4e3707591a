// run_files.h: reads the files of a run, with what flags override in them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"
#include "engine/training/model/weights.h"
#include "models/schema/parse.h"

namespace gyre {

// ReadWeights, with its warnings on standard error.  There it also says that the weights are
// averages, which --last_weights is not to take.
absl::StatusOr<Weights> ReadTrained(const std::string& where, const std::string& named_by,
                                    bool last_weights);

// The trainer's and the net's files, with --set and short flags applied.
struct ConfigFiles {
  Parsed<TrainerConfig> trainer;
  Parsed<NetConfig> net;
  AllreduceChoice allreduce;  // of `distributed`
};
// `device` is the --device that sums gradients, or "".  `spellings` has the overrides that short
// flags are.  `ranks` counts the ranks that are threads of this process.
absl::StatusOr<ConfigFiles> ReadFiles(const std::string& trainer_path,
                                      const std::vector<std::string>& overrides,
                                      const std::string& device, const Spellings& spellings,
                                      int ranks);

// The same of the texts that weights were trained by.  `path` is where they are from.
// Errors: also InvalidArgument if they are empty.
absl::StatusOr<ConfigFiles> FilesOfRun(const RunTexts& texts, const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const Spellings& spellings, int ranks);

// Where a trained net is from: `run`, or `trainer` and `weights`.
struct TrainedFrom {
  std::string run, trainer, weights;
  std::string weights_map = {};  // for RenameToNet
  bool last_weights = false;     // not their averages
};
struct TrainedFiles {
  ConfigFiles files;
  Weights weights;
};
// Reads a net that only infers, with the weights under its names.
// Errors: those of reading and RenameToNet, and InvalidArgument unless `from` names one of the two.
absl::StatusOr<TrainedFiles> ReadTrainedFiles(const TrainedFrom& from,
                                              const std::vector<std::string>& overrides,
                                              const Spellings& spellings, int ranks);

}  // namespace gyre
