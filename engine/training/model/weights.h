// weights.h: finds trained weights in a file, a checkpoint or a run's folder.
#pragma once

#include <functional>
#include <map>
#include <span>
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
  bool averages = false;  // tensors of trained parameters are their averages (OptimizerConfig.ema)
};

// Which weights a checkpoint gives.
enum class WeightsKind : uint8_t {
  kAverages,  // the averages of the trained parameters, if its run made any
  kLast,      // the parameters as training left them
};

// Reads a safetensors or npz file, a checkpoint's folder, or a run's folder with its newest whole
// one.  Errors: InvalidArgument for an empty `where` and an ONNX model, and those of reading. Those
// of `where` begin with `named_by`, unless that is "".
absl::StatusOr<Weights> ReadWeights(const std::string& where,
                                    const std::string& named_by = "--weights",
                                    WeightsKind kind = WeightsKind::kAverages);

// Copies a parameter's average, of which a sliced parameter has several tensors, over each value.
// Values without one keep theirs: they are not trained.  `find` returns an optimizer's tensor of
// that name, valid until its next call, or null.  Errors: those of `find`, and DataLoss.
using FindTensor = std::function<absl::StatusOr<const Tensor*>(const std::string&)>;
absl::Status TakeAverages(std::span<const NamedTensor> values, const FindTensor& find);

// The fit of the same weights, without the tensors of a checkpoint.  {} if `where` cannot be read:
// ReadWeights says why.
Fit ReadFit(const std::string& where);

// Fit and texts as metadata of a safetensors file, from which ReadWeights takes them.  The place of
// the trainer's file is left out.
std::map<std::string, std::string> MetadataOf(const Weights& weights);

}  // namespace gyre
