// weights.h: finds trained weights in a file, a checkpoint or a run's folder.
#pragma once

#include <map>
#include <string>

#include "engine/data/sets/fit.h"
#include "engine/data/tensors/tensor_file.h"

namespace gyre {

struct Weights {
  std::string path;  // what was read: a file or a checkpoint's folder
  TensorFile tensors;
  Fit fit = {};  // of the training data
};

// Reads a safetensors file, a checkpoint's folder, or a run's folder with its newest whole one.
// Errors: InvalidArgument for an empty `where`, and those of reading.
absl::StatusOr<Weights> ReadWeights(const std::string& where);

// The fit of the same weights, without the tensors of a checkpoint.  {} if `where` cannot be read:
// ReadWeights says why.
Fit ReadFit(const std::string& where);

// A fit as metadata of a safetensors file, from which ReadWeights takes it.
std::map<std::string, std::string> MetadataOf(const Fit& fit);

}  // namespace gyre
