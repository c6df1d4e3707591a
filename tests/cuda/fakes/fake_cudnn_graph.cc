#include "tests/cuda/fakes/fake_cudnn_graph.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/cuda/fakes/fake_cudnn_norm.h"

namespace gyre::fake_cudnn {
namespace {

constexpr uintptr_t kWorkspaceAlignment = 256;  // of cudaMalloc, which cuDNN may count on

bool IsSet(const Descriptor& tensor, int attribute) {
  const auto values = tensor.Values<unsigned char>(attribute);
  return !values.empty() && values[0] != 0;
}

bool IsVirtual(const Descriptor& tensor) { return IsSet(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL); }

cudnnDataType_t DataTypeOf(const Descriptor& tensor) {
  return tensor.Value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
}

DType TypeOf(const Descriptor& tensor) {
  switch (DataTypeOf(tensor)) {
    case CUDNN_DATA_HALF:
      return DType::kF16;
    case CUDNN_DATA_BFLOAT16:
      return DType::kBF16;
    default:
      return DType::kF32;
  }
}

// The tensors of a convolution, by forward's names, of which it computes one.
enum { kX, kW, kY };
struct Operands {
  const Descriptor* window;
  const Descriptor* tensors[3];
  int computed;
  float alpha, beta;
};

#define OPERANDS(name, x, w, y, computed)                                                  \
  Operands {                                                                               \
    operation.Child(CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC),                  \
        {operation.Child(CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x),                   \
         operation.Child(CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w),                   \
         operation.Child(CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y)},                  \
        computed, operation.Value<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA), \
        operation.Value<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA)             \
  }

bool IsPointwise(const Descriptor& operation) {
  return operation.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
}

Operands OperandsOf(const Descriptor& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return OPERANDS(BWD_DATA, DX, W, DY, kX);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return OPERANDS(BWD_FILTER, X, DW, DY, kW);
    default:
      return OPERANDS(FORWARD, X, W, Y, kY);
  }
}

std::string CheckTensor(const Descriptor& tensor) {
  const auto extents = Extents(tensor);
  const auto strides = tensor.Values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (extents.size() != 4) return "an image has four dimensions";
  if (strides.size() != extents.size()) return "as many strides as dimensions are wanted";
  std::vector<std::pair<int64_t, int64_t>> by_stride;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] < 1 || strides[i] < 1) return "extents and strides must be positive";
    if (extents[i] > 1) by_stride.emplace_back(strides[i], extents[i]);
  }
  std::sort(by_stride.begin(), by_stride.end());
  int64_t span = 1;
  for (const auto& [stride, extent] : by_stride) {
    if (stride < span) return "strides make elements overlap";
    span = stride * extent;
  }
  const auto alignment = tensor.Value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (alignment <= 0 || alignment % static_cast<int64_t>(SizeOf(TypeOf(tensor))) != 0) {
    return "the alignment must be a multiple of the element's size";
  }
  return "";
}

std::string CheckWindow(const Descriptor& window) {
  if (window.Value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2) {
    return "the fake convolves in two dimensions";
  }
  for (const auto& [attribute, least] :
       {std::pair<int, int64_t>{CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0}}) {
    const auto values = window.Values<int64_t>(attribute);
    if (values.size() != 2) return "two values are wanted for each attribute of a convolution";
    if (*std::min_element(values.begin(), values.end()) < least) return "a value is too small";
  }
  if (window.Value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT) {
    return "sums must be in float";
  }
  return "";
}

std::string CheckConvolution(const Descriptor& operation) {
  const auto [window, tensors, computed, alpha, beta] = OperandsOf(operation);
  const auto [x, w, y] = tensors;
  if (alpha != 1 || beta != 0) return "the fake assigns products as they are";
  const auto image = Extents(*x), filter = Extents(*w), output = Extents(*y);
  if (image[0] != output[0]) return "x and y differ in their number of images";
  if (filter[0] != output[1]) return "as many filters as channels of y are wanted";
  if (image[1] % filter[1] != 0 || filter[0] % (image[1] / filter[1]) != 0) {
    return "groups do not divide the channels";
  }
  const auto at = [&](int attribute, size_t i) { return window->Values<int64_t>(attribute)[i]; };
  for (size_t i = 0; i < 2; ++i) {
    const int64_t padded = image[2 + i] + at(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i) +
                           at(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i);
    const int64_t span = at(CUDNN_ATTR_CONVOLUTION_DILATIONS, i) * (filter[2 + i] - 1) + 1;
    if (padded < span ||
        (padded - span) / at(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i) + 1 != output[2 + i]) {
      return "y has not the extents that the window gives";
    }
  }
  if (DataTypeOf(*x) != DataTypeOf(*w)) return "x and w differ in type";
  if (DataTypeOf(*y) != DataTypeOf(*x) && DataTypeOf(*y) != CUDNN_DATA_FLOAT) {
    return "y has neither x's type nor float";
  }
  return "";
}

std::string CheckPointwise(const Descriptor& operation) {
  const Descriptor& pointwise = *operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const auto mode = pointwise.Value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const auto b = operation.Children(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  if (mode != CUDNN_POINTWISE_ADD && mode != CUDNN_POINTWISE_RELU_FWD) return "an unknown mode";
  if ((mode == CUDNN_POINTWISE_ADD) != !b.empty()) return "a wrong number of operands";
  const auto x = Extents(*operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
  if (x != Extents(*operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC))) {
    return "x and y differ in extents";
  }
  for (size_t i = 0; !b.empty() && i < x.size(); ++i) {
    const int64_t extent = Extents(*b[0])[i];
    if (extent != 1 && extent != x[i]) return "b cannot be broadcast";
  }
  return "";
}

// The tensors that an operation assigns.
std::vector<const Descriptor*> ResultsOf(const Descriptor& operation) {
  if (IsNorm(operation)) return ResultsOfNorm(operation);
  if (IsPointwise(operation)) {
    return {operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
  }
  const Operands operands = OperandsOf(operation);
  return {operands.tensors[operands.computed]};
}

// The tensors that an operation reads.
std::vector<const Descriptor*> SourcesOf(const Descriptor& operation) {
  const auto results = ResultsOf(operation);
  std::vector<const Descriptor*> sources;
  for (const Descriptor* child : operation.AllChildren()) {
    if (child->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR &&
        std::find(results.begin(), results.end(), child) == results.end()) {
      sources.push_back(child);
    }
  }
  return sources;
}

std::string CheckGraph(const Descriptor& graph) {
  std::map<int64_t, const Descriptor*> tensors;
  std::set<const Descriptor*> computed;
  for (const Descriptor* operation : graph.Children(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const Descriptor* source : SourcesOf(*operation)) {
      if (!tensors.emplace(Id(*source), source).second && tensors[Id(*source)] != source) {
        return "two tensors have one id";
      }
      if (IsVirtual(*source) && computed.count(source) == 0) {
        return "a virtual tensor is read that no operation before has computed";
      }
    }
    for (const Descriptor* result : ResultsOf(*operation)) {
      if (!tensors.emplace(Id(*result), result).second) return "two tensors have one id";
      computed.insert(result);
    }
  }
  return "";
}

std::string CheckPack(const Descriptor& pack) {
  const auto ids = pack.Values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  if (std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size()) return "an id is there twice";
  if (ids.size() != pack.Values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size()) {
    return "as many pointers as ids are wanted";
  }
  return "";
}

// Where the elements, in that order, are in memory.
std::vector<int64_t> Offsets(const Descriptor& tensor) {
  const auto extents = Extents(tensor);
  const auto strides = tensor.Values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  std::vector<int64_t> offsets = {0};
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    std::vector<int64_t> finer;
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < extents[axis]; ++i) finer.push_back(offset + i * strides[axis]);
    }
    offsets = std::move(finer);
  }
  return offsets;
}

int64_t Elements(const Descriptor& tensor) {
  int64_t elements = 1;
  for (const int64_t extent : Extents(tensor)) elements *= extent;
  return elements;
}

// Calls f(x index, w index, y index) for each product of a convolution.
template <typename F>
void ForEachProduct(const Operands& operands, const F& f) {
  const auto x = Extents(*operands.tensors[kX]), w = Extents(*operands.tensors[kW]);
  const auto y = Extents(*operands.tensors[kY]);
  const auto before = operands.window->Values<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto stride = operands.window->Values<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto dilation = operands.window->Values<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const bool flip = operands.window->Value<cudnnConvolutionMode_t>(
                        CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
  const int64_t groups = x[1] / w[1];
  const int64_t elements = Elements(*operands.tensors[kY]);
  // As an engine of cuDNN 9.19 has it, there is as much padding after an image as before.
  const auto fits = [&](size_t axis, int64_t position) {
    const int64_t span = dilation[axis] * (w[axis + 2] - 1) + 1;
    return position * stride[axis] + span <= x[axis + 2] + 2 * before[axis];
  };
  for (int64_t yi = 0; yi < elements; ++yi) {
    const int64_t column = yi % y[3], row = yi / y[3] % y[2], filter = yi / y[3] / y[2] % y[1];
    const int64_t image = yi / y[3] / y[2] / y[1], group = filter / (w[0] / groups);
    if (!fits(0, row) || !fits(1, column)) continue;
    for (int64_t tap = 0; tap < w[1] * w[2] * w[3]; ++tap) {
      const int64_t s = tap % w[3], r = tap / w[3] % w[2], channel = tap / w[3] / w[2];
      const int64_t h = row * stride[0] - before[0] + (flip ? w[2] - 1 - r : r) * dilation[0];
      const int64_t v = column * stride[1] - before[1] + (flip ? w[3] - 1 - s : s) * dilation[1];
      if (h < 0 || h >= x[2] || v < 0 || v >= x[3]) continue;
      f(((image * x[1] + group * w[1] + channel) * x[2] + h) * x[3] + v,
        filter * w[1] * w[2] * w[3] + tap, yi);
    }
  }
}

Values Convolve(const Descriptor& operation, const std::map<int64_t, Values>& known) {
  const Operands operands = OperandsOf(operation);
  const int computed = operands.computed;
  const int one = computed == kX ? kW : kX, other = computed == kY ? kW : kY;  // its factors
  const Values& ones = known.at(Id(*operands.tensors[one]));
  const Values& others = known.at(Id(*operands.tensors[other]));
  Values result(static_cast<size_t>(Elements(*operands.tensors[computed])));
  ForEachProduct(operands, [&](int64_t x, int64_t w, int64_t y) {
    const size_t at[] = {static_cast<size_t>(x), static_cast<size_t>(w), static_cast<size_t>(y)};
    result[at[computed]] += ones[at[one]] * others[at[other]];
  });
  return result;
}

Values ComputePointwise(const Descriptor& operation, const std::map<int64_t, Values>& known,
                        bool swallows_nan) {
  const Descriptor& x = *operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  const auto b = operation.Children(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  Values result = known.at(Id(x));
  if (b.empty()) {
    const auto of_nan = operation.Child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                            ->Values<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION);
    if (of_nan.empty() || of_nan[0] != CUDNN_PROPAGATE_NAN) swallows_nan = true;
    for (double& value : result) {
      if (value < 0 || (swallows_nan && std::isnan(value))) value = 0;
    }
    return result;
  }
  const auto extents = Extents(x), b_extents = Extents(*b[0]);
  const Values& addend = known.at(Id(*b[0]));
  for (size_t i = 0; i < result.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t index = 0, scale = 1;
    for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis]) {
      index += rest % extents[axis] % b_extents[axis] * scale;
      scale *= b_extents[axis];
    }
    result[i] += addend[static_cast<size_t>(index)];
  }
  return result;
}

}  // namespace

std::vector<const Descriptor*> Descriptor::AllChildren() const {
  std::vector<const Descriptor*> all;
  for (const int attribute : of_children) {
    for (const Descriptor* child : Children(attribute)) all.push_back(child);
  }
  return all;
}

bool IsByValue(const Descriptor& tensor) { return IsSet(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE); }

std::string Check(const Descriptor& descriptor) {
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return CheckTensor(descriptor);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return CheckWindow(descriptor);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return CheckConvolution(descriptor);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return CheckPointwise(descriptor);
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
      return CheckNorm(descriptor);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return CheckGraph(descriptor);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return CheckPack(descriptor);
    default:
      return "";
  }
}

std::string Bind(const Descriptor& plan, const Descriptor& pack,
                 std::map<int64_t, void*>* pointers) {
  const auto ids = pack.Values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto given = pack.Values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (size_t i = 0; i < ids.size(); ++i) (*pointers)[ids[i]] = given[i];
  std::set<int64_t> wanted;
  for (const Descriptor* operation : plan.graph->Children(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    std::vector<const Descriptor*> tensors = SourcesOf(*operation);
    for (const Descriptor* result : ResultsOf(*operation)) tensors.push_back(result);
    for (const Descriptor* tensor : tensors) {
      const std::string name = "tensor " + std::to_string(Id(*tensor));
      if (IsVirtual(*tensor)) {
        if (pointers->count(Id(*tensor)) > 0) return name + " is virtual and has a pointer";
        continue;
      }
      wanted.insert(Id(*tensor));
      if (pointers->count(Id(*tensor)) == 0) return name + " has no pointer";
      const auto address = reinterpret_cast<uintptr_t>(pointers->at(Id(*tensor)));
      if (address == 0) return name + " has a null pointer";
      if (address %
              static_cast<uintptr_t>(tensor->Value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)) !=
          0) {
        return name + " is less aligned than was declared";
      }
    }
  }
  if (wanted.size() != pointers->size()) return "a pointer is for none of the graph's tensors";
  if (plan.engine.workspace_bytes > 0) {
    const auto workspace =
        reinterpret_cast<uintptr_t>(pack.Value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
    if (workspace == 0) return "there is no workspace";
    if (workspace % kWorkspaceAlignment != 0) return "the workspace is not aligned";
  }
  return "";
}

std::map<int64_t, std::vector<double>> TakeNumbers(const Descriptor& plan,
                                                   std::map<int64_t, void*>* pointers) {
  std::map<int64_t, Values> numbers;
  for (const Descriptor* operation : plan.graph->Children(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const Descriptor* source : SourcesOf(*operation)) {
      if (!IsByValue(*source)) continue;
      numbers[Id(*source)] = {LoadElement(TypeOf(*source), pointers->at(Id(*source)), 0)};
      pointers->erase(Id(*source));
    }
  }
  return numbers;
}

void Run(const Descriptor& plan, const std::map<int64_t, void*>& pointers,
         std::map<int64_t, std::vector<double>> known) {
  for (const Descriptor* operation : plan.graph->Children(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const Descriptor* source : SourcesOf(*operation)) {
      if (known.count(Id(*source)) > 0) continue;
      Values& values = known[Id(*source)];
      for (const int64_t offset : Offsets(*source)) {
        values.push_back(LoadElement(TypeOf(*source), pointers.at(Id(*source)), offset));
      }
    }
    if (IsNorm(*operation)) {
      ComputeNorm(*operation, known);
    } else {
      known[Id(*ResultsOf(*operation)[0])] =
          IsPointwise(*operation) ? ComputePointwise(*operation, known, plan.engine.swallows_nan)
                                  : Convolve(*operation, known);
    }
    for (const Descriptor* result : ResultsOf(*operation)) {
      if (IsVirtual(*result)) continue;
      const std::vector<int64_t> offsets = Offsets(*result);
      for (size_t i = 0; i < offsets.size(); ++i) {
        StoreElement(TypeOf(*result), pointers.at(Id(*result)), offsets[i],
                     known.at(Id(*result))[i]);
      }
    }
  }
}

}  // namespace gyre::fake_cudnn
