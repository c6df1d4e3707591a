#include "layers/common/global_mean.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gyre {

namespace {

// to[n] = the weight of sample n, or 0 if it is bad.
template <typename T>
struct ReadWeight {
  const T* weights;
  double* to;
  Fault* fault;
  int layer;
  HOST_DEVICE void operator()(int64_t n) const {
    const auto weight = static_cast<double>(static_cast<AccumulateType<T>>(weights[n]));
    const bool bad = !(weight >= 0 && weight < static_cast<double>(INFINITY));
    if (bad) RaiseFault(fault, layer, n);
    to[n] = bad ? 0 : weight;
  }
};

// The state of the weights.
absl::StatusOr<StateSpec> StateOfWeights(const InferInput& input) {
  constexpr int kWeights = GlobalMean::kWeights;
  if (input.inputs.size() > kWeights + 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects 2 inputs, or 3 with weights of the samples, got %d", input.inputs.size()));
  }
  const Shape& weights = input.inputs[kWeights];
  const Shape samples{input.inputs[0][BatchAxis(input, 0)]};
  if (input.dtypes[kWeights] != input.compute || !(weights == samples)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects weights %s of type %s, one for each sample, got %s of type %s", samples.ToString(),
        DTypeName(input.compute), weights.ToString(), DTypeName(input.dtypes[kWeights])));
  }
  if (NeedsGradient(input, kWeights)) {
    return absl::InvalidArgumentError(
        "expects weights from the data, got an output that depends on trained parameters");
  }
  StateSpec state = MakeState("weights", StateKind::kInput, weights, input.compute, kRead, kNone);
  state.not_negative = true;
  return state;
}

}  // namespace

absl::Status GlobalMean::Declare(const InferInput& input, double terms, const std::string& counted,
                                 LayerSpec& spec) {
  compute_ = input.compute;
  terms_ = terms;
  const bool weighed = input.inputs.size() > kWeights;
  if (weighed) {
    ASSIGN_OR_RETURN(spec.states.emplace_back(), StateOfWeights(input));
  }
  mean_ = AddState(spec, MakeState("output", StateKind::kOutput, Shape{}, compute_, kWrite, kNone));
  metric_ = AddState(spec, MakeState("metric", StateKind::kStatistic, Shape{2}, DType::kF64,
                                     kRead | kWrite, kNone));
  spec.metric = metric_;
  if (counted.empty() && !weighed) return absl::OkStatus();
  count_ = AddState(spec, MakeState("count", StateKind::kStatistic, Shape{1}, DType::kF64,
                                    kRead | kWrite, InBackward(input, kRead)));
  spec.states.back().summed_after = 0;
  spec.count = count_;
  spec.counted = counted;
  if (!counted.empty()) spec.counted_from.push_back(1);
  spec.forward_phases = 2;
  if (!weighed) return absl::OkStatus();
  absl::StrAppend(&spec.counted, counted.empty() ? "" : ", ", "by weight");
  spec.counted_from.push_back(kWeights);
  weights_ = AddState(spec, MakeState("sample_weights", StateKind::kSaved, input.inputs[kWeights],
                                      DType::kF64, kRead | kWrite, InBackward(input, kRead)));
  return absl::OkStatus();
}

absl::Status GlobalMean::ReadWeights(const LayerContext& context) const {
  if (weights_ < 0) return absl::OkStatus();
  const Tensor& to = context.states[weights_];
  return VisitReal(compute_, [&]<typename T>() {
    return ForEach(context.stream, to.elements(),
                   ReadWeight<T>{context.states[kWeights].as<T>(), to.as<double>(), context.fault,
                                 context.layer});
  });
}

InferInput WithoutWeights(const InferInput& input) {
  const auto cut = [](auto values) {
    return values.first(std::min<size_t>(values.size(), GlobalMean::kWeights));
  };
  InferInput rest = input;
  rest.inputs = cut(input.inputs);
  rest.dtypes = cut(input.dtypes);
  rest.batch_axes = cut(input.batch_axes);
  rest.needs_gradient = cut(input.needs_gradient);
  return rest;
}

absl::StatusOr<LayerSpec> LabelledScores::Read(const InferInput& input,
                                               const LabelOptions& options) {
  has_distributions_ =
      options.distributions && input.dtypes.size() > kLabels && IsReal(input.dtypes[kLabels]);
  const DType dtype = has_distributions_ ? input.compute : DType::kI32;
  RETURN_IF_ERROR(CheckInputs(input, {{"scores", input.compute}, {"labels", dtype}}));
  const Shape &scores = input.inputs[kScores], &labels = input.inputs[kLabels];
  ASSIGN_OR_RETURN(rows_, RowsOf(input, "scores", "classes"));
  if (options.binary && rows_.columns != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects scores [..., 1], one for each label, got %s", scores.ToString()));
  }
  const Shape leading(scores.dims().first(scores.rank() - 1));
  if (has_distributions_ && !(labels == scores)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects labels %s of type LABEL, or REAL distributions %s, a share for each of the "
        "scores, got REAL %s",
        leading.ToString(), scores.ToString(), labels.ToString()));
  }
  if (!has_distributions_ && !(labels == leading)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects labels %s, one for each row of scores %s, got %s",
                        leading.ToString(), scores.ToString(), labels.ToString()));
  }
  if (has_distributions_ && options.ignored) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "ignore_label: expected none beside distributions, got %d; give a sample the weight 0",
        *options.ignored));
  }
  ASSIGN_OR_RETURN(const int axis, CommonBatchAxis(input));
  samples_ = scores[axis];
  inner_ = scores.elements(axis + 1, scores.rank() - 1);
  positions_ = scores.elements(0, axis) * inner_;
  options_ = options;
  LayerSpec spec;
  spec.states = {
      MakeState("scores", StateKind::kInput, scores, input.compute, kRead, kNone),
      MakeState("labels", StateKind::kInput, labels, dtype, kRead, InBackward(input, kRead))};
  spec.states[kLabels].not_negative = has_distributions_;
  if (!has_distributions_) spec.states[kLabels].largest = classes() - 1;
  return spec;
}

absl::StatusOr<LayerSpec> MeanOverLabels::InferMean(const InferInput& input,
                                                    const LabelOptions& options,
                                                    const std::string& counted) {
  ASSIGN_OR_RETURN(LayerSpec spec, Read(WithoutWeights(input), options));
  auto terms = static_cast<double>(input.global_batch);
  if (!options.by_sample) terms *= static_cast<double>(positions());
  std::vector<std::string> rules;
  if (options.ignored) {
    rules.push_back(
        absl::StrCat(options.by_sample ? "samples" : "labels", " but ", *options.ignored));
  }
  if (!counted.empty()) rules.push_back(counted);
  RETURN_IF_ERROR(Declare(input, terms, absl::StrJoin(rules, ", "), spec));
  return spec;
}

Labels LabelledScores::LabelsOf(const int32_t* labels, const double* weights) const {
  return {labels,
          static_cast<int32_t>(classes()),
          options_.ignored.has_value(),
          options_.ignored.value_or(0),
          {samples_, inner_, weights}};
}

}  // namespace gyre
