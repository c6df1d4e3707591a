// onnx_source.h: what of a run's net and weights an ONNX model says, and the model of it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/training/model/weights.h"
#include "engine/training/onnx/onnx_model.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

struct OnnxOptions {
  std::vector<std::string> outputs = {};  // layers; none: as CutToPredict
  bool keep_batch_norm = false;           // instead of folding it into the layer ahead
  bool channels_first = false;            // see OnnxContent
  bool scores = false;                    // also what shares are made of, as outputs
};

// A net cut to its predictions, with all that it needs.
struct OnnxSource {
  Parsed<NetConfig> net;
  TensorFile tensors;
  std::vector<Prediction> predictions;
  std::vector<Normalization> units;                     // of predictions, which the model undoes
  std::map<std::string, Normalization> normalizations;  // of inputs that are left
  std::vector<std::string> classes;
  bool channels_first = false;

  absl::StatusOr<onnx::ModelProto> Model(const Primitives& primitives);
};

// Errors: those of CutToPredict, NormalizationOf, FoldBatchNorms and FoldTensors.
absl::StatusOr<OnnxSource> MakeOnnxSource(Parsed<NetConfig> net, const DataConfig& data,
                                          const Weights& weights, const OnnxOptions& options);

}  // namespace gyre
