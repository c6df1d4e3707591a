#include "engine/training/onnx/own_forward.h"

#include <algorithm>

#include "engine/runtime/check.h"
#include "engine/runtime/random.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/predict/predict.h"

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
  return FormOf(value, source.channels_first).kind == OnnxForm::kChannelsFirst;
}

Shape ShapeInModel(const OnnxSource& source, const NetValue& value) {
  const Shape& s = value.shape;
  return IsTurned(source, value) ? Shape{s[0], s[3], s[1], s[2]} : s;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OwnForward>> OwnForward::Create(const OnnxSource& source,
                                                               int64_t samples,
                                                               const Primitives& primitives) {
  std::unique_ptr<OwnForward> own(new OwnForward(source));
  Feed feed = FeedOfValues(*source.net.message);
  for (FedInput& input : feed.inputs) {
    const auto found = source.normalizations.find(input.name);
    if (found != source.normalizations.end()) input.normalization = found->second;
  }
  own->device_ = NewCpuDevice({});
  ASSIGN_OR_RETURN(own->trained_, LoadTrained(source.net,
                                              {.train = false,
                                               .shape = {.global = samples},
                                               .test_batch = samples,
                                               .test_samples = samples,
                                               .feed = feed,
                                               .primitives = &primitives},
                                              source.tensors, "the weights", *own->device_));
  ASSIGN_OR_RETURN(TestIteration iteration,
                   TestIteration::Create(*own->device_, own->net(), nullptr));
  own->iteration_.emplace(std::move(iteration));
  ASSIGN_OR_RETURN(own->batch_, OwnedBatch::Create(*own->device_, own->net().plan()));
  RETURN_IF_ERROR(own->net().ClearCarried(*own->trained_.stream));
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
    const auto labels = static_cast<uint64_t>(LargestTaken(spec(), i, /*otherwise=*/3) + 1);
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

absl::Status OwnForward::Fill(const NamedTensor& named) {
  const auto of_name = std::ranges::find(spec().values, named.name, &NetValue::name);
  const NetValue& value = *of_name;
  const auto i = static_cast<size_t>(of_name - spec().values.begin());
  HostTensors turned;
  Tensor rows = named.tensor;
  if (IsTurned(source_, value)) {
    rows = turned.Add(value.name, value.shape, DType::kF32);
    EachTurned(value.shape, [&](int64_t at, int64_t of) {
      rows.as<float>()[at] = named.tensor.as<float>()[of];
    });
  }
  const Tensor& to = batch_.batch.arrays[i];
  return Decoder(rows.dtype, to.dtype, net().plan().feed.inputs[i].normalization)
      .Decode(rows, /*move=*/{}, to);
}

absl::StatusOr<HostTensors> OwnForward::Run(const HostTensors& inputs) {
  for (const NamedTensor& named : inputs.tensors) RETURN_IF_ERROR(Fill(named));
  RETURN_IF_ERROR(iteration_->Run(batch_.batch, *trained_.stream));
  HostTensors outputs;
  for (const Prediction& prediction : source_.predictions) {
    const int recorder = RecorderOf(spec(), prediction);
    const NetValue& value = spec().values[spec().nodes[recorder].inputs[0]];
    const Tensor records = iteration_->results().records(recorder);  // by sample
    Unnormalize(prediction.unit, {records.as<double>(), static_cast<size_t>(records.elements())});
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
