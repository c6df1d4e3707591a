#include "engine/training/onnx/onnx_source.h"

#include <algorithm>

#include "engine/runtime/check.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/model/fold_batch_norm.h"

namespace gyre {

absl::StatusOr<onnx::ModelProto> OnnxSource::Model(const Primitives& primitives) {
  return MakeOnnx(net,
                  {.predictions = predictions,
                   .units = units,
                   .weights = &tensors,
                   .normalizations = normalizations,
                   .classes = classes,
                   .channels_first = channels_first},
                  primitives);
}

absl::StatusOr<OnnxSource> MakeOnnxSource(Parsed<NetConfig> net, const DataConfig& data,
                                          const Weights& weights, const OnnxOptions& options) {
  OnnxSource source{.net = std::move(net),
                    .tensors = weights.tensors,
                    .predictions = {},
                    .units = {},
                    .normalizations = {},
                    .classes = ClassNamesOf(weights.fit),
                    .channels_first = options.channels_first};
  const NetConfig whole = *source.net.message;
  ASSIGN_OR_RETURN(source.predictions, CutToPredict(options.outputs, "", source.net));
  if (options.scores) AddScores(source.predictions, *source.net.message);
  for (const Prediction& prediction : source.predictions) {
    source.units.emplace_back();
    if (prediction.target.empty()) continue;
    ASSIGN_OR_RETURN(source.units.back(),
                     NormalizationOf(data, weights.fit, whole, prediction.target));
  }
  const NetConfig& left = *source.net.message;
  for (const NormalizationConfig& config : data.normalization()) {
    const std::string& input = InputOf(config, data);
    if (std::ranges::find(left.input(), input, &InputConfig::name) == left.input().end()) continue;
    ASSIGN_OR_RETURN(source.normalizations[input], NormalizationOf(data, weights.fit, left, input));
  }
  if (options.keep_batch_norm) return source;
  ASSIGN_OR_RETURN(const std::vector<FoldedNorm> folded, FoldBatchNorms(source.net));
  auto tensors = FoldTensors(folded, source.tensors);
  if (!tensors.ok()) return Annotate(tensors.status(), weights.path);
  source.tensors = *std::move(tensors);
  return source;
}

}  // namespace gyre
