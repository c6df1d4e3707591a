// fold_batch_norm.h: for a net that only infers, each batch_norm as part of the convolution or
// dense layer ahead of it: with running mean m and variance v, and r = scale / sqrt(v + epsilon),
//   r (W x + b - m) + bias  =  (r W) x + (r (b - m) + bias),
// which costs nothing, and leaves the layer ahead to apply the activation behind.
#pragma once

#include <string>
#include <vector>

#include "engine/data/tensors/tensor_file.h"
#include "models/schema/parse.h"

namespace gyre {

struct FoldedNorm {
  std::string into, norm;  // layers
  bool has_bias = false;   // the layer ahead, of its own
  double epsilon = 0;
};

// Takes out each batch_norm of a net for testing that alone reads a conv2d, conv1d or dense, where
// neither shares parameters by name; its readers read that layer, which gets a bias.  Errors: those
// of BuildGraph.
absl::StatusOr<std::vector<FoldedNorm>> FoldBatchNorms(Parsed<NetConfig>& net);

// The tensors that fit the folded net, made of those that fit the net as it was, in their memory.
// Errors: NotFound for a missing tensor, InvalidArgument for one of another
// shape or type; both name it.
absl::StatusOr<TensorFile> FoldTensors(const std::vector<FoldedNorm>& folded,
                                       const TensorFile& weights);

}  // namespace gyre
