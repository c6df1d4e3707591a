// weights.h: finds trained weights by whatever name a user has for them.
#pragma once

#include <string>

#include "engine/data/sets/fit.h"
#include "engine/data/tensors/tensor_file.h"

namespace gyre {

struct Weights {
  std::string path;  // what was read: a file or a checkpoint's folder
  TensorFile tensors;
  Fit fit = {};  // of the data that they were trained on; none in a file of tensors
};

// `where`: a safetensors file, a checkpoint's folder, or a run's folder, whose newest whole
// checkpoint is taken.  Errors: InvalidArgument if empty; those of reading.
absl::StatusOr<Weights> ReadWeights(const std::string& where);

}  // namespace gyre
