#include "engine/training/onnx/verify.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/check.h"
#include "engine/runtime/own_library.h"
#include "engine/training/onnx/opencv/opencv_dnn.h"

namespace gyre {
namespace {

constexpr char kLibrary[] = "libgyre_opencv_dnn.so";

// The operators that OpenCV 4.6 computes right, in the forms that Gyre writes.
constexpr char kReadByOpenCv[] =
    "Add AveragePool BatchNormalization Concat Conv Div Erf Flatten Gemm GlobalAveragePool "
    "GlobalMaxPool GRU Identity LeakyRelu LRN LSTM MatMul MaxPool Mul Relu Reshape Sigmoid Slice "
    "Softmax Squeeze Sub Tanh Transpose Unsqueeze";

absl::StatusOr<DnnForwardFunction*> OpenLibrary() {
  const std::string path = PathOfOwnLibrary(kLibrary, "engine/training/onnx/opencv");
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const forward = handle == nullptr ? nullptr : dlsym(handle, kDnnForward);
  if (forward != nullptr) return reinterpret_cast<DnnForwardFunction*>(forward);
  return absl::UnavailableError(absl::StrCat("--verify needs ", path,
                                             ", which does not load: ", dlerror(),
                                             "; run tools/setup, or apt-get install "
                                             "libopencv-dnn406"));
}

absl::StatusOr<DnnForwardFunction*> LoadOpenCv() {
  static const absl::StatusOr<DnnForwardFunction*> library = OpenLibrary();
  return library;
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
  ASSIGN_OR_RETURN(DnnForwardFunction* const forward, LoadOpenCv());
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
