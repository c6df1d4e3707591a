// onnx_source.h: what of a run's net and weights an ONNX model says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/training/model/weights.h"
#include "engine/training/predict/prediction_net.h"

namespace gyre {

struct OnnxOptions {
  std::vector<std::string> outputs = {};  // layers; none: as CutToPredict
  bool keep_batch_norm = false;           // instead of folding it into the layer ahead
  bool channels_first = false;            // see OnnxSource
};

// A net cut to its predictions, with all that it needs.
struct OnnxSource {
  Parsed<NetConfig> net;
  TensorFile tensors = {};                                   // of the net
  std::vector<Prediction> predictions = {};                  // whose units the model undoes
  std::map<std::string, Normalization> normalizations = {};  // by input
  std::vector<std::string> classes = {};
  // Inputs and outputs of four axes are N,C,H,W instead of N,H,W,C.
  bool channels_first = false;
};

// Errors: those of PreparePrediction, NormalizationOf and FoldBatchNorms.
absl::StatusOr<OnnxSource> MakeOnnxSource(Parsed<NetConfig> net, DataConfig data, Weights weights,
                                          const OnnxOptions& options);

}  // namespace gyre
