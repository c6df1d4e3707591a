#include "engine/training/training_step.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<TrainingStep>> TrainingStep::Create(
    const Model& model, const Optimizer& optimizer, std::optional<double> clip_norm, Device& device,
    Stream& stream, CommunicationThread& communication) {
  ASSIGN_OR_RETURN(StepBuffer buffer, StepBuffer::Create(device, model.train()));
  std::unique_ptr<TrainingStep> step(new TrainingStep(
      model, optimizer, clip_norm, stream, StatisticSummer(communication), std::move(buffer)));
  std::vector<Tensor> buckets;
  for (size_t b = 0; b < model.train().plan().order.buckets.size(); ++b) {
    buckets.push_back(model.train().bucket(static_cast<int>(b)));
  }
  ASSIGN_OR_RETURN(step->sync_, GradientSync::Create(device, communication, std::move(buckets)));
  return step;
}

absl::Status TrainingStep::Run(const Batch& batch, const InputMap& inputs, StepScalars scalars) {
  optimizer_.Prepare(scalars);
  const Net& net = model_.train();
  RETURN_IF_ERROR(buffer_.Upload(stream_, scalars, batch, inputs));
  RETURN_IF_ERROR(net.Forward(stream_, sum_statistic_));
  RETURN_IF_ERROR(buffer_.Download(stream_));
  RETURN_IF_ERROR(net.Backward(stream_, [&](int bucket) { return sync_->Start(bucket, stream_); }));
  // A bad label explains a bad gradient, so it is looked at first.
  RETURN_IF_ERROR(stream_.Synchronize());
  RETURN_IF_ERROR(Annotate(buffer_.CheckFault(batch), "training data"));
  RETURN_IF_ERROR(Update(scalars));
  return stream_.Synchronize();
}

// The update gate: without clipping each bucket is updated as soon as its sum arrives; with it, the
// norm needs them all first.
absl::Status TrainingStep::Update(StepScalars& scalars) {
  double sum_of_squares = 0;
  for (int b = 0; b < sync_->buckets(); ++b) {
    ASSIGN_OR_RETURN(const ReduceResult result, sync_->Finish(b, stream_));
    if (!result.finite) return NotFinite(b);
    sum_of_squares += result.sum_of_squares;
    if (!clip_norm_.has_value()) RETURN_IF_ERROR(UpdateBucket(b));
  }
  if (!clip_norm_.has_value()) return absl::OkStatus();
  const double norm = std::sqrt(sum_of_squares);
  if (norm > *clip_norm_) {
    scalars.gradient_scale = *clip_norm_ / norm;
    RETURN_IF_ERROR(buffer_.UploadScalars(stream_, scalars));
  }
  for (int b = 0; b < sync_->buckets(); ++b) RETURN_IF_ERROR(UpdateBucket(b));
  return absl::OkStatus();
}

absl::Status TrainingStep::UpdateBucket(int bucket) {
  const Net& net = model_.train();
  const ParameterSet& parameters = model_.plan().parameters;
  const GradientOrder& order = net.plan().order;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    const int p = order.gradients[g].parameter;
    const StateSpec& spec = parameters.all()[p].spec;
    std::vector<Tensor> slots;
    for (size_t s = 0; s < model_.plan().options.slots.size(); ++s) {
      slots.push_back(net.slot(p, static_cast<int>(s), parameters));
    }
    RETURN_IF_ERROR(optimizer_.Update(stream_, net.step_scalars(),
                                      {.value = net.parameter(p, parameters),
                                       .gradient = net.gradient(p, parameters),
                                       .slots = slots,
                                       .learning_rate_multiplier = spec.learning_rate_multiplier,
                                       .decay_multiplier = spec.decay_multiplier}));
  }
  return absl::OkStatus();
}

absl::Status TrainingStep::NotFinite(int bucket) const {
  const GradientOrder& order = model_.train().plan().order;
  std::string names;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    const Parameter& parameter = model_.plan().parameters.all()[order.gradients[g].parameter];
    absl::StrAppend(&names, names.empty() ? "" : ", ", parameter.name());
  }
  return absl::InternalError(
      absl::StrCat("a gradient is not finite: one of ", names, "; ", kDivergenceAdvice));
}

}  // namespace gyre
