#include "engine/training/onnx/own_forward.h"

#include <algorithm>

#include "engine/runtime/check.h"
#include "engine/runtime/random.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/predict/predict.h"
#include "engine/training/predict/target_unit.h"

namespace gyre {
namespace {

// Calls f(index in rows N,H,W,C, index in N,C,H,W) for each element.
template <typename F>
void EachTurned(const Shape& rows, const F& f) {
  const int64_t channels = rows[3], pixels = rows[1] * rows[2];
  for (int64_t n = 0; n < rows[0]; ++n) {
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t c = 0; c < channels; ++c) {
        f((n * pixels + p) * channels + c, (n * channels + c) * pixels + p);
      }
    }
  }
}

bool IsTurned(const OnnxSource& source, const NetValue& value) {
  return source.channels_first && value.shape.rank() == 4 && value.dtype != DType::kI32;
}

Shape ShapeInModel(const OnnxSource& source, const NetValue& value) {
  const Shape& s = value.shape;
  return IsTurned(source, value) ? Shape{s[0], s[3], s[1], s[2]} : s;
}

// The largest label that a reader takes, or 3.
int64_t Largest(const NetSpec& spec, int value) {
  int64_t largest = -1;
  for (const int reader : spec.values[value].consumers) {
    const NetNode& node = spec.nodes[reader];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int64_t of_state = node.inputs[i] == value ? node.spec.states[i].largest : -1;
      if (of_state >= 0) largest = largest < 0 ? of_state : std::min(largest, of_state);
    }
  }
  return largest < 0 ? 3 : largest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OwnForward>> OwnForward::Create(const OnnxSource& source,
                                                               int64_t samples,
                                                               const Primitives& primitives) {
  std::unique_ptr<OwnForward> own(new OwnForward(source));
  ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(source.net, {.train = false,
                                                          .shape = {.global = samples},
                                                          .test_batch = samples,
                                                          .test_samples = samples,
                                                          .feed = FeedOfBytes(*source.net.message),
                                                          .primitives = &primitives}));
  RETURN_IF_ERROR(CheckLoad(plan, source.tensors, nullptr));
  own->device_ = NewCpuDevice({});
  ASSIGN_OR_RETURN(own->stream_, own->device_->NewStream());
  ASSIGN_OR_RETURN(own->model_, Model::Create(std::move(plan), *own->device_, *own->stream_));
  RETURN_IF_ERROR(own->model_->Load(*own->stream_, source.tensors, nullptr));
  ASSIGN_OR_RETURN(StepBuffer buffer, StepBuffer::Create(*own->device_, own->net()));
  own->buffer_.emplace(std::move(buffer));
  RETURN_IF_ERROR(own->net().ClearCarried(*own->stream_));
  return own;
}

HostTensors OwnForward::RandomInputs(uint64_t seed) const {
  HostTensors inputs;
  for (int i = 0; i < spec().inputs; ++i) {
    const NetValue& value = spec().values[i];
    if (value.consumers.empty()) continue;
    const Tensor tensor = inputs.Add(value.name, ShapeInModel(source_, value),
                                     value.dtype == DType::kI32 ? DType::kI32 : DType::kF32);
    const uint64_t key = RandomKey(seed, value.name);
    const bool normalized = source_.normalizations.contains(value.name);
    const auto labels = static_cast<uint64_t>(Largest(spec(), i) + 1);
    for (int64_t e = 0; e < tensor.elements(); ++e) {
      const RandomBits bits = Philox(key, 0, static_cast<uint64_t>(e));
      if (tensor.dtype == DType::kI32) {
        tensor.as<int32_t>()[e] = static_cast<int32_t>(bits.v[0] * labels >> 32);
      } else {
        tensor.as<float>()[e] =
            normalized ? UniformFloat(bits.v[0]) : static_cast<float>(Normals(bits).first);
      }
    }
  }
  return inputs;
}

absl::StatusOr<HostTensors> OwnForward::Run(const HostTensors& inputs) {
  for (const NamedTensor& named : inputs.tensors) {
    const auto of_name = std::ranges::find(spec().values, named.name, &NetValue::name);
    const auto i = static_cast<int>(of_name - spec().values.begin());
    const NetValue& value = *of_name;
    const Tensor to = net().input(i);
    if (value.dtype == DType::kI32) {
      std::copy_n(named.tensor.as<int32_t>(), to.elements(), to.as<int32_t>());
      continue;
    }
    const auto found = source_.normalizations.find(value.name);
    const Normalization normalization =
        found == source_.normalizations.end() ? Normalization{} : found->second;
    const auto& [mean, std] = normalization;
    const float* const from = named.tensor.as<float>();
    const auto set = [&](int64_t at, int64_t of) {
      const auto c = static_cast<size_t>(at);
      to.as<float>()[at] =
          static_cast<float>((from[of] - mean[c % mean.size()]) / std[c % std.size()]);
    };
    if (IsTurned(source_, value)) {
      EachTurned(value.shape, set);
    } else {
      for (int64_t e = 0; e < to.elements(); ++e) set(e, e);
    }
  }
  buffer_->Set({}, {});
  RETURN_IF_ERROR(buffer_->Upload(*stream_));
  RETURN_IF_ERROR(
      net().Forward(*stream_, [](Stream&, absl::string_view, Tensor) { return absl::OkStatus(); }));
  RETURN_IF_ERROR(buffer_->Download(*stream_));
  RETURN_IF_ERROR(stream_->Synchronize());
  HostTensors outputs;
  for (size_t p = 0; p < source_.predictions.size(); ++p) {
    const Prediction& prediction = source_.predictions[p];
    const int recorder = RecorderOf(spec(), prediction);
    const NetValue& value = spec().values[spec().nodes[recorder].inputs[0]];
    const Tensor records = buffer_->records(recorder);  // by sample
    Unnormalize(source_.units[p], {records.as<double>(), static_cast<size_t>(records.elements())});
    const Tensor to =
        outputs.Add(NameInModel(prediction), ShapeInModel(source_, value), DType::kF32);
    const int64_t outer = value.shape.elements(0, value.batch_axis);
    const int64_t inner = value.shape.elements(value.batch_axis + 1, value.shape.rank());
    const int64_t samples = value.shape[value.batch_axis];
    const auto number = [&](int64_t at) {
      const int64_t o = at / (samples * inner), n = at / inner % samples;
      return static_cast<float>(records.as<double>()[(n * outer + o) * inner + at % inner]);
    };
    if (IsTurned(source_, value)) {
      EachTurned(value.shape, [&](int64_t at, int64_t of) { to.as<float>()[of] = number(at); });
    } else {
      for (int64_t e = 0; e < to.elements(); ++e) to.as<float>()[e] = number(e);
    }
  }
  return outputs;
}

}  // namespace gyre
