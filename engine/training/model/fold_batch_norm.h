// fold_batch_norm.h: folds each batch_norm of a net that only infers into the convolution or dense
// layer ahead.  With running mean m and variance v, and r = scale / sqrt(v + epsilon),
//   r (W x + b - m) + bias  =  (r W) x + (r (b - m) + bias).
// This costs nothing, and the layer ahead can then apply the activation behind.
#pragma once

#include <string>
#include <vector>

#include "engine/data/tensors/tensor_file.h"
#include "engine/training/model/weights.h"
#include "models/schema/parse.h"

namespace gyre {

struct FoldedNorm {
  std::string into, norm;  // layers
  bool has_bias = false;   // of the layer ahead, before the folding
  double epsilon = 0;
};

// Removes each batch_norm of a testing net that alone reads a conv2d, conv1d or dense layer, unless
// either shares parameters by name.  Readers of the norm then read that layer, which gets a bias.
// Errors: those of BuildGraph.
absl::StatusOr<std::vector<FoldedNorm>> FoldBatchNorms(Parsed<NetConfig>& net);

// The tensors of the folded net, computed in the memory of the original net's tensors.
// Errors, naming the tensor: NotFound, or InvalidArgument for another shape or type.
absl::StatusOr<TensorFile> FoldTensors(const std::vector<FoldedNorm>& folded,
                                       const TensorFile& weights);

// Both, of a net with its weights.
absl::Status FoldBatchNorms(Parsed<NetConfig>& net, Weights& weights);

}  // namespace gyre
