// weights.h: finds trained weights in a file, a checkpoint or a run's folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/data/sets/fit.h"
#include "engine/data/tensors/tensor_file.h"

namespace gyre {

// The texts that weights were trained by, as parsed.  Empty where a file does not have them.
struct RunTexts {
  std::string net, trainer;
  std::string trainer_file;  // where it was, from which its paths count
};

struct Weights {
  std::string path;  // what was read: a file or a checkpoint's folder
  TensorFile tensors;
  Fit fit = {};  // of the training data
  RunTexts texts = {};
  std::vector<std::string> warnings = {};  // for people: newer checkpoints that are damaged
};

// Reads a safetensors or npz file, a checkpoint's folder, or a run's folder with its newest whole
// one.  Errors: InvalidArgument for an empty `where` and an ONNX model, and those of reading. Those
// of `where` begin with `named_by`, unless that is "".
absl::StatusOr<Weights> ReadWeights(const std::string& where,
                                    const std::string& named_by = "--weights");

// The fit of the same weights, without the tensors of a checkpoint.  {} if `where` cannot be read:
// ReadWeights says why.
Fit ReadFit(const std::string& where);

// Fit and texts as metadata of a safetensors file, from which ReadWeights takes them.  The place of
// the trainer's file is left out.
std::map<std::string, std::string> MetadataOf(const Weights& weights);

}  // namespace gyre
