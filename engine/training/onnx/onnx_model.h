// onnx_model.h: a trained net as an ONNX model.  Pure functions, but for WriteOnnx.
//
// The model takes what Gyre's data hold: bytes of pictures as 0 to 1, all else as it is, and
// normalizes it itself.  The samples' axis is "N", of any extent.  An axis of time is "T" where the
// net's parameters and constants do not depend on it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/primitives/primitives.h"
#include "engine/training/model/weights.h"
#include "engine/training/net/infer/net_spec.h"
#include "engine/training/onnx/onnx_subset.pb.h"
#include "engine/training/predict/prediction_net.h"
#include "layers/interface/onnx.h"

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

// The form in which the model has an input or an output.
OnnxForm FormOf(const NetValue& value, bool channels_first);
// The model's name of an output: "fc2", or "fc2.softmax" behind that.
std::string NameInModel(const Prediction& prediction);

// Changes the source's text for a moment.  All are alike in F32, whatever the precision of the net.
// Errors: those of InferNet, CheckStored and Layer::ToOnnx, with the layer's position, and
// InvalidArgument for two outputs of one name.
absl::StatusOr<onnx::ModelProto> MakeOnnx(OnnxSource& source, const Primitives& primitives);

// Makes the axes N and T of a net's model have one extent: that, and that of the net's text. OpenCV
// 4.6 reads recurrent layers only so, and GRU only with a constant for its first state.
void FixExtents(const NetConfig& net, int64_t samples, onnx::ModelProto& model);

// For people: `the graph image [N, 28, 28, 1] -> fc2.softmax [N, 10]`.
std::string DescribeOnnx(const onnx::ModelProto& model);

// Errors: ResourceExhausted for 2 GiB or more, which protobuf cannot hold, and those of
// WriteFileAtomically.
absl::Status WriteOnnx(const std::string& path, const onnx::ModelProto& model);

}  // namespace gyre
