// Convolution by cuDNN: images N,H,W,C and weights [filters, height, width, channels of a group],
// the layouts that tensor cores want.  Whether its ReLU lets a NaN through is not documented.
//
// Letters: K filters, C channels, CG channels of a group, R x S the kernel, P x Q the output.
#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/column_sum.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/cuda/cudnn_graph.h"

namespace gyre {
namespace {

using Operand = CudnnGraph::Tensor;

constexpr int64_t kX = 1, kWeights = 2, kY = 3, kBias = 4, kProducts = 5, kSums = 6;  // ids

// The layout's name, by the letters of the canonical [o, i, h, w].
constexpr std::string_view kLayout = "ohwi";

template <typename T>
struct Zero {
  T* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = static_cast<T>(0.0f); }
};

cudnnDataType_t DataType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDNN_DATA_HALF;
    case DType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

// Same seed, same bits: nothing nondeterministic.  Errors are bounded element by element, relative
// to the sum of an element's absolute products: a transform (FFT, Winograd) errs relative to the
// largest element of its tile, so it cannot keep any such bound; nor can sums or factors of fewer
// bits than the contract's.  Without TF32, F32 must leave out tensor cores, which round its factors
// to 10 bits of fraction; the half types lose nothing there.
std::vector<cudnnBackendNumericalNote_t> ForbiddenNotes(DType dtype, bool tf32) {
  std::vector<cudnnBackendNumericalNote_t> notes = {
      CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
      CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
      CUDNN_NUMERICAL_NOTE_FFT,
      CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
      CUDNN_NUMERICAL_NOTE_WINOGRAD,
      CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
      CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
      CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13};
  if (dtype == DType::kF32 && !tf32) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  return notes;
}

class CudnnConv2d : public Conv2d {
 public:
  CudnnConv2d(std::shared_ptr<CudaContext> context, const Conv2dSpec& spec)
      : context_(std::move(context)),
        spec_(spec),
        group_channels_(spec.c / spec.groups),
        layout_{.bytes = static_cast<size_t>(spec.weights()) * SizeOf(spec.dtype),
                .tag = std::string(kLayout)},
        x_(Image(kX, spec.h, spec.w, spec.c)),
        weights_(Dense(
            kWeights, {spec.filters, group_channels_, spec.window.kernel_h, spec.window.kernel_w})),
        y_(Image(kY, spec.out_h(), spec.out_w(), spec.filters)) {}

  // Chooses the engines.
  absl::Status Prepare() {
    if (spec_.n == 0) return absl::OkStatus();
    RETURN_IF_ERROR(PrepareForward());
    if (!spec_.train) return absl::OkStatus();
    if (spec_.data_gradient) {
      CudnnGraph data(*context_);
      data.ConvolutionBackwardData(Window(), y_, weights_, x_);
      RETURN_IF_ERROR(Choose("backward data", data, &backward_data_));
    }
    CudnnGraph weights(*context_);
    weights.ConvolutionBackwardWeights(Window(), x_, y_, weights_);
    return Choose("backward weights", weights, &backward_weights_);
  }

  const WeightLayout& weight_layout() const override { return layout_; }

  size_t scratch_bytes() const override {
    size_t bytes = 0;
    for (const auto* plan : {&forward_, &backward_data_, &backward_weights_}) {
      if (plan->has_value()) bytes = std::max(bytes, (*plan)->scratch_bytes());
    }
    if (!spec_.train || !spec_.bias) return bytes;
    return std::max(bytes, VisitReal(spec_.dtype, [&]<typename T>() {
                      return ReduceColumnsScratch<ColumnSum<T>>(out_pixels(), spec_.filters);
                    }));
  }

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void* scratch) const override {
    if (spec_.n == 0) return absl::OkStatus();
    if (fused_ && spec_.bias) {
      return Execute(stream, forward_, {{kX, x}, {kWeights, weights}, {kBias, bias}, {kY, y}},
                     scratch);
    }
    RETURN_IF_ERROR(Execute(stream, forward_, {{kX, x}, {kWeights, weights}, {kY, y}}, scratch));
    if (fused_) return absl::OkStatus();
    return AddBiasAndActivate(stream, spec_.dtype, spec_.activation, out_pixels(), spec_.filters,
                              spec_.bias ? bias : nullptr, y);
  }

  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void* scratch) const override {
    if (spec_.n == 0) return absl::OkStatus();
    return Execute(stream, backward_data_, {{kY, dy}, {kWeights, weights}, {kX, dx}}, scratch);
  }

  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights,
                               void* dbias, void* scratch) const override {
    if (spec_.n == 0) {
      RETURN_IF_ERROR(VisitReal(spec_.dtype, [&]<typename T>() {
        return ForEach(stream, spec_.weights(), Zero<T>{static_cast<T*>(dweights)});
      }));
    } else {
      RETURN_IF_ERROR(
          Execute(stream, backward_weights_, {{kX, x}, {kY, dy}, {kWeights, dweights}}, scratch));
    }
    if (!spec_.bias) return absl::OkStatus();
    return VisitReal(spec_.dtype, [&]<typename T>() {
      return ReduceColumns(
          stream, out_pixels(), spec_.filters,
          ColumnSum<T>{{}, spec_.filters, static_cast<const T*>(dy), static_cast<T*>(dbias)},
          scratch);
    });
  }

  absl::Status Pack(const void* canonical, void* opaque) const override {
    TransposeFilters(group_channels_, spec_.window.kernel_h * spec_.window.kernel_w, canonical,
                     opaque);
    return absl::OkStatus();
  }

  absl::Status Unpack(const void* opaque, void* canonical) const override {
    TransposeFilters(spec_.window.kernel_h * spec_.window.kernel_w, group_channels_, opaque,
                     canonical);
    return absl::OkStatus();
  }

 private:
  // Extents in cuDNN's order; channels are innermost in memory.
  Operand Dense(int64_t id, const std::array<int64_t, 4>& extents) const {
    const auto [n, c, h, w] = extents;
    return {.id = id,
            .type = DataType(spec_.dtype),
            .extents = extents,
            .strides = {h * w * c, 1, w * c, c}};
  }

  Operand Image(int64_t id, int64_t h, int64_t w, int64_t c) const {
    return Dense(id, {spec_.n, c, h, w});
  }

  // A tensor like y between two operations, as precise as their sums.
  Operand Intermediate(int64_t id) const {
    Operand tensor = y_;
    tensor.id = id;
    tensor.type = CUDNN_DATA_FLOAT;
    tensor.is_virtual = true;
    return tensor;
  }

  CudnnGraph::Convolution Window() const {
    const Window2d& w = spec_.window;
    return {.padding_before = {w.padding_top, w.padding_left},
            .padding_after = {w.padding_bottom, w.padding_right},
            .stride = {w.stride_h, w.stride_w},
            .dilation = {w.dilation_h, w.dilation_w}};
  }

  // With bias and activation in one graph or, where no engine takes that, apart.
  absl::Status PrepareForward() {
    const bool relu = spec_.activation == Activation::kRelu;
    CudnnGraph fused(*context_);
    Operand result = spec_.bias || relu ? Intermediate(kProducts) : y_;
    fused.ConvolutionForward(Window(), x_, weights_, result);
    if (spec_.bias) {
      const Operand sums = relu ? Intermediate(kSums) : y_;
      fused.Add(result, Dense(kBias, {1, spec_.filters, 1, 1}), sums);
      result = sums;
    }
    if (relu) fused.Relu(result, y_);
    const absl::Status chosen = Choose("forward", fused, &forward_);
    if (!absl::IsUnimplemented(chosen) || !(spec_.bias || relu)) return chosen;

    fused_ = false;
    CudnnGraph apart(*context_);
    apart.ConvolutionForward(Window(), x_, weights_, y_);
    return Choose("forward, bias and activation apart", apart, &forward_);
  }

  absl::Status Choose(std::string_view pass, CudnnGraph& graph, std::optional<CudnnPlan>* plan) {
    const std::string what = absl::StrCat(ToString(spec_), ", ", std::string(pass));
    auto chosen =
        graph.Plan({ForbiddenNotes(spec_.dtype, context_->options.tf32), WorkspaceLimit()});
    if (!chosen.ok()) return Annotate(chosen.status(), what);
    context_->Record(
        absl::StrCat(what, ": cudnn ", context_->cudnn.cudnnGetVersion(), ", ", chosen->choice()));
    plan->emplace(*std::move(chosen));
    return absl::OkStatus();
  }

  // An engine that wants another layout converts each operand into the workspace, at most in float;
  // what else there may be are the partial sums of a split.
  size_t WorkspaceLimit() const {
    const int64_t elements =
        spec_.n * spec_.h * spec_.w * spec_.c + spec_.weights() + out_pixels() * spec_.filters;
    return static_cast<size_t>(elements) * sizeof(float) + kSplitWorkspaceBytes;
  }

  absl::Status Execute(Stream& stream, const std::optional<CudnnPlan>& plan,
                       const std::vector<std::pair<int64_t, const void*>>& tensors,
                       void* scratch) const {
    GYRE_CHECK(plan.has_value());  // a spec that is not for training has forward alone
    static constexpr const char* kNames[] = {"", "x", "weights", "y", "bias"};  // by id
    for (const auto& [id, pointer] : tensors) RETURN_IF_ERROR(CheckAligned(pointer, kNames[id]));
    RETURN_IF_ERROR(CheckAligned(scratch, "scratch"));
    return plan->Execute(*context_, stream, tensors, scratch);
  }

  // Each filter, a [rows, columns] matrix of elements, transposed.
  void TransposeFilters(int64_t rows, int64_t columns, const void* from, void* to) const {
    const auto size = static_cast<int64_t>(SizeOf(spec_.dtype));
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to);
    for (int64_t filter = 0; filter < spec_.filters; ++filter) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          std::memcpy(target + (column * rows + row) * size, source, static_cast<size_t>(size));
          source += size;
        }
      }
      target += rows * columns * size;
    }
  }

  int64_t out_pixels() const { return spec_.n * spec_.out_h() * spec_.out_w(); }

  const std::shared_ptr<CudaContext> context_;
  const Conv2dSpec spec_;
  const int64_t group_channels_;
  const WeightLayout layout_;
  const Operand x_, weights_, y_;
  std::optional<CudnnPlan> forward_, backward_data_, backward_weights_;
  bool fused_ = true;  // bias and activation are in forward_
};

}  // namespace

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareCudaConv2d(std::shared_ptr<CudaContext> context,
                                                          const Conv2dSpec& spec) {
  if (!spec.weight_layout.empty() && spec.weight_layout != kLayout) {
    return absl::UnimplementedError(
        absl::StrCat(ToString(spec), ": cuDNN does not know this weight layout"));
  }
  auto convolution = std::make_unique<CudnnConv2d>(std::move(context), spec);
  RETURN_IF_ERROR(convolution->Prepare());
  return convolution;
}

}  // namespace gyre
