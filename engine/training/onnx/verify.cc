#include "engine/training/onnx/verify.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/check.h"
#include "engine/runtime/own_library.h"
#include "engine/runtime/random.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/onnx/opencv/opencv_dnn.h"
#include "engine/training/predict/predict.h"

namespace gyre {
namespace {

bool IsTurned(const OnnxSource& source, const NetValue& value) {
  return FormOf(value, source.channels_first).kind == OnnxForm::kChannelsFirst;
}

Shape ShapeInModel(const OnnxSource& source, const NetValue& value) {
  const Shape& s = value.shape;
  return IsTurned(source, value) ? Shape{s[0], s[3], s[1], s[2]} : s;
}

// The index in the model, N,C,H,W if it is turned, of an element of Gyre's value in rows.
int64_t IndexInModel(const OnnxSource& source, const NetValue& value, int64_t at) {
  if (!IsTurned(source, value)) return at;
  const int64_t channels = value.shape[3], pixels = value.shape[1] * value.shape[2];
  const int64_t pixel = at / channels, sample = pixel / pixels;
  return (sample * channels + at % channels) * pixels + pixel % pixels;
}

// The operators that OpenCV 4.6 computes right, in the forms that Gyre writes.
constexpr char kReadByOpenCv[] =
    "Add AveragePool BatchNormalization Concat Conv Div Erf Flatten Gemm GlobalAveragePool "
    "GlobalMaxPool GRU Identity LeakyRelu LRN LSTM MatMul MaxPool Mul Relu Reshape Sigmoid Slice "
    "Softmax Squeeze Sub Tanh Transpose Unsqueeze";

absl::StatusOr<DnnForwardFunction*> OpenLibrary() {
  const std::string path = PathOfOwnLibrary("libgyre_opencv_dnn.so", "engine/training/onnx/opencv");
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const forward = handle == nullptr ? nullptr : dlsym(handle, kDnnForward);
  if (forward != nullptr) return reinterpret_cast<DnnForwardFunction*>(forward);
  return absl::UnavailableError(absl::StrCat("--verify needs ", path,
                                             ", which does not load: ", dlerror(),
                                             "; run tools/setup, or apt-get install "
                                             "libopencv-dnn406"));
}

struct Comparison {
  const HostTensors& expected;
  size_t at = 0;
  double worst = 0;
  std::string error = {};

  void Take(const int* dims, int rank, const float* elements) {
    const NamedTensor& own = expected.tensors[at++];
    int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= dims[axis];
    if (count != own.tensor.elements()) {
      error =
          absl::StrCat("output \"", own.name, "\": expected ", own.tensor.shape.ToString(),
                       ", got [", absl::StrJoin(std::vector<int>(dims, dims + rank), ", "), "]");
      return;
    }
    double largest = 0, difference = 0;
    for (int64_t e = 0; e < count; ++e) {
      const double value = own.tensor.as<float>()[e], off = std::abs(value - elements[e]);
      largest = std::max(largest, std::abs(value));
      difference = std::isfinite(off) ? std::max(difference, off) : INFINITY;
    }
    if (difference > 0) worst = std::max(worst, difference / std::max(largest, 1e-30));
  }
};

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
    for (int64_t e = 0; e < rows.elements(); ++e) {
      rows.as<float>()[e] = named.tensor.as<float>()[IndexInModel(source_, value, e)];
    }
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
    for (int64_t e = 0; e < to.elements(); ++e) {
      const int64_t o = e / (samples * inner), n = e / inner % samples;
      to.as<float>()[IndexInModel(source_, value, e)] =
          static_cast<float>(records.as<double>()[(n * outer + o) * inner + e % inner]);
    }
  }
  return outputs;
}

std::string BeyondOpenCv(const onnx::ModelProto& model) {
  std::vector<std::string> why;
  for (const onnx::ValueInfoProto& input : model.graph().input()) {
    if (input.type().tensor_type().elem_type() == onnx::TensorProto::FLOAT) continue;
    why.push_back(absl::StrCat("the integers of \"", input.name(), "\""));
  }
  std::set<std::string> known = absl::StrSplit(kReadByOpenCv, ' ');  // or told of
  for (const onnx::NodeProto& node : model.graph().node()) {
    if (!known.insert(node.op_type()).second) continue;
    why.push_back(absl::StrCat(node.op_type(), " of \"",
                               node.name().substr(0, node.name().rfind('/')), "\""));
  }
  return absl::StrJoin(why, ", ");
}

absl::StatusOr<double> DifferenceByOpenCv(const onnx::ModelProto& model, const OnnxSource& source,
                                          int64_t samples, const Primitives& primitives) {
  static const absl::StatusOr<DnnForwardFunction*> opencv = OpenLibrary();
  ASSIGN_OR_RETURN(DnnForwardFunction* const forward, opencv);
  ASSIGN_OR_RETURN(const auto own, OwnForward::Create(source, samples, primitives));
  HostTensors inputs = own->RandomInputs(/*seed=*/static_cast<uint64_t>(samples));
  ASSIGN_OR_RETURN(const HostTensors expected, own->Run(inputs));
  for (const onnx::ValueInfoProto& input : model.graph().input()) {
    if (std::ranges::count(inputs.tensors, input.name(), &NamedTensor::name) > 0) continue;
    std::vector<int64_t> dims;  // of a carried state, which begins with 0
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      dims.push_back(dim.has_dim_param() ? samples : dim.dim_value());
    }
    inputs.Add(input.name(), Shape(dims), DType::kF32);
  }
  std::vector<std::vector<int>> dims;
  std::vector<DnnArray> arrays;
  for (const NamedTensor& input : inputs.tensors) {
    dims.emplace_back(input.tensor.shape.dims().begin(), input.tensor.shape.dims().end());
    arrays.push_back({input.name.c_str(), dims.back().data(), input.tensor.shape.rank(),
                      input.tensor.as<float>()});
  }
  std::vector<const char*> outputs;
  for (const NamedTensor& output : expected.tensors) outputs.push_back(output.name.c_str());
  onnx::ModelProto fixed = model;
  FixExtents(*source.net.message, samples, fixed);
  const std::string bytes = fixed.SerializeAsString();
  Comparison comparison{expected};
  char text[kDnnText];
  const TakeDnnOutput* const take = [](void* taker, const int* d, int rank, const float* elements) {
    static_cast<Comparison*>(taker)->Take(d, rank, elements);
  };
  if (!forward(bytes.data(), bytes.size(), arrays.data(), arrays.size(), outputs.data(),
               outputs.size(), take, &comparison, text)) {
    return absl::InternalError(absl::StrCat("OpenCV: ", text));
  }
  if (!comparison.error.empty()) return absl::InternalError("OpenCV: " + comparison.error);
  return comparison.worst;
}

}  // namespace gyre
