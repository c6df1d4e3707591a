// weights.h: finds trained weights in a file, a checkpoint or a run's folder.
#pragma once

#include <string>

#include "engine/data/sets/fit.h"
#include "engine/data/tensors/tensor_file.h"

namespace gyre {

struct Weights {
  std::string path;  // what was read: a file or a checkpoint's folder
  TensorFile tensors;
  Fit fit = {};  // of the training data; none for a file of tensors
};

// Reads a safetensors file, a checkpoint's folder, or a run's folder with its newest whole one.
// Errors: InvalidArgument for an empty `where`, and those of reading.
absl::StatusOr<Weights> ReadWeights(const std::string& where);

}  // namespace gyre
