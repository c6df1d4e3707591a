#include "layers/common/global_mean.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gyre {

void GlobalMean::Declare(const InferInput& input, double terms, const std::string& counted,
                         LayerSpec& spec) {
  compute_ = input.compute;
  terms_ = terms;
  spec.states.push_back(MakeState("output", StateKind::kOutput, Shape{}, compute_, kWrite, kNone));
  spec.states.push_back(
      MakeState("metric", StateKind::kStatistic, Shape{2}, DType::kF64, kRead | kWrite, kNone));
  spec.metric = kMetric;
  if (counted.empty()) return;
  count_ = AddState(spec, MakeState("count", StateKind::kStatistic, Shape{1}, DType::kF64,
                                    kRead | kWrite, InBackward(input, kRead)));
  spec.states.back().summed_after = 0;
  spec.count = count_;
  spec.counted = counted;
  spec.forward_phases = 2;
}

absl::StatusOr<LayerSpec> LabelledScores::Read(const InferInput& input,
                                               const LabelOptions& options) {
  RETURN_IF_ERROR(CheckInputs(input, {{"scores", input.compute}, {"labels", DType::kI32}}));
  const Shape &scores = input.inputs[kScores], &labels = input.inputs[kLabels];
  ASSIGN_OR_RETURN(rows_, RowsOf(input, "scores", "classes"));
  if (options.binary && rows_.columns != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects scores [..., 1], one for each label, got %s", scores.ToString()));
  }
  const Shape leading(scores.dims().first(scores.rank() - 1));
  if (!(labels == leading)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects labels %s, one for each row of scores %s, got %s",
                        leading.ToString(), scores.ToString(), labels.ToString()));
  }
  ASSIGN_OR_RETURN(const int axis, CommonBatchAxis(input));
  samples_ = labels[axis];
  inner_ = labels.elements(axis + 1, labels.rank());
  positions_ = labels.elements(0, axis) * inner_;
  options_ = options;
  LayerSpec spec;
  spec.states = {
      MakeState("scores", StateKind::kInput, scores, input.compute, kRead, kNone),
      MakeState("labels", StateKind::kInput, labels, DType::kI32, kRead, InBackward(input, kRead))};
  spec.states[kLabels].largest = classes() - 1;
  return spec;
}

absl::StatusOr<LayerSpec> MeanOverLabels::InferMean(const InferInput& input,
                                                    const LabelOptions& options) {
  ASSIGN_OR_RETURN(LayerSpec spec, Read(input, options));
  auto terms = static_cast<double>(input.global_batch);
  if (!options.by_sample) terms *= static_cast<double>(positions());
  std::string counted;
  if (options.ignored) {
    counted = absl::StrCat(options.by_sample ? "samples" : "labels", " but ", *options.ignored);
  }
  Declare(input, terms, counted, spec);
  return spec;
}

Labels LabelledScores::LabelsOf(const LayerContext& context) const {
  return {context.states[kLabels].as<int32_t>(),
          static_cast<int32_t>(classes()),
          options_.ignored.has_value(),
          options_.ignored.value_or(0),
          samples_,
          inner_};
}

}  // namespace gyre
