// prepared_prediction.h: a run's texts and weights, cut to what predicts.  Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/batches/decoder.h"
#include "engine/training/model/weights.h"
#include "engine/training/predict/prediction_net.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

struct PreparedPrediction {
  std::vector<Prediction> predictions;
  std::vector<Normalization> units;  // of predictions: undone by Unnormalize
};

// Cuts `net` by CutToPredict, and folds its batch norms into weights.tensors.  Removes from the
// data of `trainer` what is of training alone, or of inputs that are cut.
// Errors: those of CutToPredict, NormalizationOf, FoldBatchNorms and FoldTensors.
absl::StatusOr<PreparedPrediction> PreparePrediction(std::span<const std::string> outputs,
                                                     const std::string& kept, Weights& weights,
                                                     TrainerConfig& trainer,
                                                     Parsed<NetConfig>& net);

}  // namespace gyre
