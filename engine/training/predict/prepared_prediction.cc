#include "engine/training/predict/prepared_prediction.h"

#include <algorithm>

#include "engine/runtime/check.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/model/fold_batch_norm.h"

namespace gyre {
namespace {

bool Lacks(const NetConfig& net, const std::string& input) {
  return std::ranges::find(net.input(), input, &InputConfig::name) == net.input().end();
}

// Removes what feeds inputs that the cut net lacks.  Returns whether anything is left.
bool ForgetInputs(const NetConfig& net, DatasetConfig& set) {
  if (set.has_images()) {
    ImagesConfig& images = *set.mutable_images();
    if (Lacks(net, images.label())) images.clear_label();
    return !images.has_input() || !Lacks(net, images.input());
  }
  if (!set.has_arrays()) return true;
  auto& arrays = *set.mutable_arrays()->mutable_array();
  for (int i = arrays.size() - 1; i >= 0; --i) {
    if (Lacks(net, arrays[i].input())) arrays.DeleteSubrange(i, 1);
  }
  return !arrays.empty();
}

// Likewise of data.train and data.test, and of what is beside them.
void ForgetSources(const NetConfig& net, DataConfig& data) {
  std::vector<DatasetConfig*> sets = {data.mutable_train()};
  if (data.has_test()) sets.push_back(data.mutable_test());
  for (DatasetConfig* set : sets) ForgetInputs(net, *set);
  for (int i = data.train().beside_size() - 1; i >= 0; --i) {
    bool left = true;
    for (DatasetConfig* set : sets) left = ForgetInputs(net, *set->mutable_beside(i)) && left;
    for (DatasetConfig* set : sets) {
      if (!left) set->mutable_beside()->DeleteSubrange(i, 1);
    }
  }
}

// Removes what is of training alone, or of inputs that the cut net lacks.
void Forget(const NetConfig& net, DataConfig& data) {
  ForgetSources(net, data);
  data.clear_augmentation();
  data.clear_class_weight();
  data.clear_max_bad_samples();
  if (data.order() != DataConfig::CONTIGUOUS) data.clear_order();
  auto& all = *data.mutable_normalization();
  for (int i = all.size() - 1; i >= 0; --i) {
    const std::string& input = all[i].has_input() ? all[i].input() : data.image_input();
    if (Lacks(net, input)) all.DeleteSubrange(i, 1);
  }
}

}  // namespace

absl::StatusOr<PreparedPrediction> PreparePrediction(std::span<const std::string> outputs,
                                                     const std::string& kept, Weights& weights,
                                                     TrainerConfig& trainer,
                                                     Parsed<NetConfig>& net) {
  const NetConfig whole = *net.message;
  PreparedPrediction prepared;
  ASSIGN_OR_RETURN(prepared.predictions, CutToPredict(outputs, kept, net));
  for (const Prediction& prediction : prepared.predictions) {
    prepared.units.emplace_back();
    if (prediction.target.empty()) continue;
    ASSIGN_OR_RETURN(prepared.units.back(),
                     NormalizationOf(trainer.data(), weights.fit, whole, prediction.target));
  }
  ASSIGN_OR_RETURN(const std::vector<FoldedNorm> folded, FoldBatchNorms(net));
  auto tensors = FoldTensors(folded, weights.tensors);
  if (!tensors.ok()) return Annotate(tensors.status(), weights.path);
  weights.tensors = *std::move(tensors);
  Forget(*net.message, *trainer.mutable_data());
  return prepared;
}

}  // namespace gyre
