// prediction_net.h: the part of a net that computes what is asked for, without labels and losses.
// Also the data that feed it, of a run or of files named by hand.  Pure functions, but for a list
// that is written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/batches/decoder.h"
#include "engine/data/sets/fit.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// What a net gives for each sample.
struct Prediction {
  enum class OutputKind : uint8_t {
    kValues,
    kClassShares,  // over the last axis, which sum to 1
    kShares,       // each from 0 to 1, on its own
  };
  std::string name;         // as it was asked for: LAYER or LAYER:K
  std::string record = {};  // the layer that records it
  std::string target = {};  // the net's input that it is to equal, in that input's unit, or ""
  OutputKind kind = OutputKind::kValues;
  Normalization unit = {};  // of the target, undone by Unnormalize
};

// Removes all layers of `net` but those that `outputs` need when testing, and inputs that none of
// them reads but `kept`, if that is one.  Appends a layer `record` for each output.  Without
// outputs they are what the losses read first, behind a softmax or a sigmoid where the loss is of
// one. Errors: those of BuildGraph, and InvalidArgument for an output that is no layer ("did you
// mean"), or a net without a loss.
absl::StatusOr<std::vector<Prediction>> CutToPredict(std::span<const std::string> outputs,
                                                     const std::string& kept,
                                                     Parsed<NetConfig>& net);

// CutToPredict, with the units of targets by the weights' fit.  Removes from `data` what is of
// training alone, or of inputs that are cut.  Errors: also those of NormalizationOf.
absl::StatusOr<std::vector<Prediction>> PreparePrediction(std::span<const std::string> outputs,
                                                          const std::string& kept, const Fit& fit,
                                                          DataConfig& data, Parsed<NetConfig>& net);

// Appends what records the scores that predictions of shares are made of, and the predictions of
// these.  `net` is CutToPredict's, whose batch norms may be folded.
void AddScores(std::vector<Prediction>& predictions, NetConfig& net);

// Appends what records the class shares of the first softmax_cross_entropy [N, classes] whose
// labels, or distributions, are the net's input `label_input`.  None if there is no such loss.
// Errors: those of BuildGraph.
absl::StatusOr<std::optional<Prediction>> AddClassShares(const std::string& label_input,
                                                         Parsed<NetConfig>& net);

// Makes data.test of `trainer` the files in `paths`, of one kind, by their endings:
//   pictures, or folders of them       for an input [height, width, 1, 3 or 4]
//   .csv                               where the run read a table
//   .tsv                               where the run read reviews: lines TEXT or LABEL TAB TEXT
//   .npz, by the names of inputs       or a .npy, for a net of one input
// They are read as the run read its training data.  `net` is CutToPredict's.  `folder` is for a
// list, which is written, and must outlive the data.
// Errors: InvalidArgument for no path, a path of another kind, or one that is not there.
absl::Status TakeAsTestData(std::span<const std::string> paths, const std::string& folder,
                            const NetConfig& net, TrainerConfig& trainer);

}  // namespace gyre
