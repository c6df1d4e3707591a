#include "engine/training/onnx/onnx_source.h"

#include "engine/runtime/check.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/model/fold_batch_norm.h"

namespace gyre {

absl::StatusOr<OnnxSource> MakeOnnxSource(Parsed<NetConfig> net, DataConfig data, Weights weights,
                                          const OnnxOptions& options) {
  OnnxSource source{.net = std::move(net),
                    .classes = ClassNamesOf(weights.fit),
                    .channels_first = options.channels_first};
  ASSIGN_OR_RETURN(source.predictions,
                   PreparePrediction(options.outputs, /*kept=*/"", weights.fit, data, source.net));
  for (const NormalizationConfig& config : data.normalization()) {
    const std::string& input = InputOf(config, data);
    ASSIGN_OR_RETURN(source.normalizations[input],
                     NormalizationOf(data, weights.fit, *source.net.message, input));
  }
  if (!options.keep_batch_norm) RETURN_IF_ERROR(FoldBatchNorms(source.net, weights));
  source.tensors = std::move(weights.tensors);
  return source;
}

}  // namespace gyre
