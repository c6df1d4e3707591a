#include "layers/mean_over_labels.h"

#include "absl/strings/str_format.h"

namespace gyre {

absl::StatusOr<LayerSpec> MeanOverLabels::Infer(const InferInput& input,
                                                std::optional<int32_t> ignored) {
  RETURN_IF_ERROR(CheckInputs(input, {{"scores", input.compute}, {"labels", DType::kI32}}));
  const Shape &scores = input.inputs[kScores], &labels = input.inputs[kLabels];
  if (scores.rank() != 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects scores [N, classes], got %s", scores.ToString()));
  }
  RETURN_IF_ERROR(CheckExtent("classes", scores[1]));
  if (!(labels == Shape{scores[0]})) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects labels [%d], one for each row of scores %s, got %s", scores[0],
                        scores.ToString(), labels.ToString()));
  }
  compute_ = input.compute;
  samples_ = scores[0];
  classes_ = scores[1];
  global_batch_ = input.global_batch;
  ignored_ = ignored;

  LayerSpec spec;
  spec.states = {
      MakeState("scores", StateKind::kInput, scores, compute_, kRead, kNone),
      MakeState("labels", StateKind::kInput, labels, DType::kI32, kRead, InBackward(input, kRead)),
      MakeState("output", StateKind::kOutput, Shape{}, compute_, kWrite, kNone),
      MakeState("metric", StateKind::kStatistic, Shape{2}, DType::kF64, kRead | kWrite, kNone)};
  spec.metric = kMetric;
  if (ignored_) {
    count_ = static_cast<int>(spec.states.size());
    spec.states.push_back(MakeState("count", StateKind::kStatistic, Shape{1}, DType::kF64,
                                    kRead | kWrite, InBackward(input, kRead)));
    spec.states.back().summed_after = 0;
  }
  spec.forward_phases = phases();
  return spec;
}

Labels MeanOverLabels::LabelsOf(const LayerContext& context) const {
  return {context.states[kLabels].as<int32_t>(), static_cast<int32_t>(classes_),
          ignored_.has_value(), ignored_.value_or(0)};
}

Normaliser MeanOverLabels::NormaliserOf(const LayerContext& context) const {
  return {static_cast<double>(global_batch_),
          count_ < 0 ? nullptr : context.states[count_].as<double>()};
}

}  // namespace gyre
