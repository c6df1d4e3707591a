// dense: y = x W^T + b over the last axis.
//
// x: [..., I], seen as [R, I]; W: [O, I]; b: [O]; y: [..., O].  By the chain rule
//   dx = dy W,  dW = dy^T x,  db = the sum of dy over R.
//
// A W above 32 MiB (as F32) is split along O into at most 64 slices.  A shared W is not split.
// Each slice is a phase of forward and of backward, so the device need not hold all of W at once.
// A slice's columns of y and dy are contiguous in scratch.  dx accumulates in its own type.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/column_sum.h"
#include "layers/common/cells.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1, kWeight = 2;  // states; more slices, bias and scratch follow

// Sizes are those in F32, so checkpoints of any precision have the same slices.  A slice is at
// least half a millisecond of work for a memory of 30 GB/s, so splitting adds little.  More slices
// would be steps by the thousand.
constexpr int64_t kLargestWhole = 32 << 20, kSliceBytes = 16 << 20, kMostSlices = 64;
// [n, a, b] as [n, b, a].
std::vector<float> Swapped(const std::vector<float>& from, int64_t n, int64_t a, int64_t b) {
  std::vector<float> to(from.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < a; ++j) {
      for (int64_t k = 0; k < b; ++k) to[(i * b + k) * a + j] = from[(i * a + j) * b + k];
    }
  }
  return to;
}

// Rows of a slice are a multiple of this, so that slices end with a cache line of any type.
constexpr int64_t kSliceRows = 32;

class Dense : public Layer {
 public:
  explicit Dense(const DenseConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& x = input.inputs[0];
    ASSIGN_OR_RETURN(const Rows rows, RowsOf(input, "x", "inputs"));
    RETURN_IF_ERROR(CheckExtent("rows of x", rows.count, /*least=*/0));
    const int64_t inputs = rows.columns;
    compute_ = input.compute;
    rows_ = rows.count;
    outputs_ = config_.outputs();

    const bool data_gradient = NeedsGradient(input, kX);
    const Initializer weights{
        .kind = Initializer::Kind::kXavier, .fan_in = inputs, .fan_out = outputs_};
    ASSIGN_OR_RETURN(const StateSpec weight,
                     MakeParameter("weight", Shape{outputs_, inputs}, config_.weight(), weights,
                                   input, data_gradient ? kRead : kNone));
    Cut(weight);
    RETURN_IF_ERROR(Prepare(input, inputs, weight.trained()));
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, x, compute_, kRead,
                             InBackward(input, weight.trained() ? kRead : kNone)),
                   MakeOutput(input, x.With(x.rank() - 1, outputs_), kNone)};
    for (size_t p = 0; p < slices_.size(); ++p) spec.states.push_back(SliceOf(weight, p));
    if (config_.use_bias()) {
      Initializer zeros{.fan_in = inputs, .fan_out = outputs_};
      ASSIGN_OR_RETURN(StateSpec bias,
                       MakeParameter("bias", Shape{outputs_}, config_.bias(), zeros, input, kNone));
      bias_ = AddState(spec, std::move(bias));
    }
    const size_t sums = input.train && config_.use_bias() ? BiasScratch(input) : 0;
    const uint8_t access = kRead | kWrite;
    scratch_ = AddScratch(spec, staged_bytes_ + std::max(sums, ScratchBytes()), access,
                          InBackward(input, access));
    spec.slices = spec.forward_phases = spec.backward_phases = static_cast<int>(slices_.size());
    spec.applied_activation = !HasBound(input);
    const double products = 2.0 * static_cast<double>(rows_) * static_cast<double>(inputs) *
                            static_cast<double>(outputs_);
    spec.forward_flops =
        products + (config_.use_bias() ? static_cast<double>(rows_ * outputs_) : 0);
    spec.backward_flops = (data_gradient + weight.trained()) * spec.forward_flops;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    const std::span<const Tensor> states = context.states;
    const WeightSlice& slice = slices_[context.phase];
    const size_t before = static_cast<size_t>(slice.first) * SizeOf(compute_);
    const void* const bias =
        config_.use_bias() ? static_cast<const std::byte*>(states[bias_].data) + before : nullptr;
    void* const y = is_cut() ? states[scratch_].data : states[kY].data;
    RETURN_IF_ERROR(slice.forward->Run(context.stream, states[kX].data,
                                       states[kWeight + context.phase].data, bias, y,
                                       Scratch(context)));
    if (!is_cut()) return absl::OkStatus();
    return CopyCells(context.stream, compute_, rows_, slice.count, {y, slice.count},
                     ColumnsOf(slice, states[kY]));
  }

  absl::Status Backward(const LayerContext& context) const override {
    const std::span<const Tensor> states = context.states, gradients = context.gradients;
    const WeightSlice& slice = slices_[context.phase];
    const int weight = kWeight + context.phase;
    const void* dy = gradients[kY].data;
    if (is_cut()) {
      dy = states[scratch_].data;
      RETURN_IF_ERROR(CopyCells(context.stream, compute_, rows_, slice.count,
                                ColumnsOf(slice, gradients[kY]),
                                {states[scratch_].data, slice.count}));
    }
    if (gradients[weight]) {
      RETURN_IF_ERROR(slice.backward_weight->Run(context.stream, dy, states[kX].data, nullptr,
                                                 gradients[weight].data, Scratch(context)));
    }
    const bool last = context.phase + 1 == static_cast<int>(slices_.size());
    if (last && config_.use_bias() && gradients[bias_]) RETURN_IF_ERROR(BackwardBias(context));
    if (!gradients[kX]) return absl::OkStatus();
    return slice.backward_data->Run(context.stream, dy, states[weight].data, nullptr,
                                    gradients[kX].data, Scratch(context));
  }

  // Of two axes Gemm with transB, the form that OpenCV 4.6 reads too.  The columns of the weight
  // follow those of x.
  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const int64_t inputs = onnx.shape(kX)[onnx.shape(kX).rank() - 1];
    const OnnxForm form = onnx.Form().kind == OnnxForm::kColumnsFirst ? onnx.Form() : OnnxForm{};
    const std::string x = onnx.Input(kX, form);
    if (onnx.shape(kX).rank() == 2) {
      std::vector<std::string> operands = {
          x, form == OnnxForm{} ? onnx.Parameter("weight")
                                : onnx.Weights("weight", {outputs_, inputs},
                                               Swapped(onnx.Numbers("weight"), outputs_,
                                                       inputs / form.channels, form.channels))};
      if (config_.use_bias()) operands.push_back(onnx.Parameter("bias"));
      onnx.Output(0, onnx.Node("Gemm", operands, {{"transB", int64_t{1}}}));
      return absl::OkStatus();
    }
    const std::string weight = onnx.Weights("weight", {inputs, outputs_},
                                            Swapped(onnx.Numbers("weight"), 1, outputs_, inputs));
    std::string y = onnx.Node("MatMul", {x, weight});
    if (config_.use_bias()) y = onnx.Node("Add", {y, onnx.Parameter("bias")});
    onnx.Output(0, y);
    return absl::OkStatus();
  }

 private:
  struct WeightSlice {
    int64_t first = 0, count = 0;  // rows of W
    std::unique_ptr<Gemm> forward, backward_data, backward_weight;
  };
  bool is_cut() const { return slices_.size() > 1; }
  // A slice's columns of y or dy.
  Cells ColumnsOf(const WeightSlice& slice, const Tensor& of) const {
    return {static_cast<std::byte*>(of.data) + static_cast<size_t>(slice.first) * SizeOf(compute_),
            outputs_};
  }

  void Cut(const StateSpec& weight) {
    int64_t longest = std::max<int64_t>(outputs_, 1);
    const int64_t bytes = weight.shape.elements() * static_cast<int64_t>(sizeof(float));
    if (bytes > kLargestWhole && weight.shared_name.empty()) {
      const int64_t slices = std::min(CeilDiv(bytes, kSliceBytes), kMostSlices);
      longest = RoundUp(CeilDiv(outputs_, slices), kSliceRows);
    }
    slices_.clear();
    for (int64_t first = 0; first < outputs_ || first == 0; first += longest) {
      WeightSlice& slice = slices_.emplace_back();
      slice.first = first;
      slice.count = std::min(longest, outputs_ - first);
    }
    staged_bytes_ =
        !is_cut()
            ? 0
            : RoundUp(static_cast<size_t>(std::max<int64_t>(rows_, 1) * longest) * SizeOf(compute_),
                      size_t{64});
  }

  StateSpec SliceOf(const StateSpec& weight, size_t index) const {
    StateSpec state = weight;
    if (!is_cut()) return state;
    const WeightSlice& slice = slices_[index];
    state.name = absl::StrCat(weight.name, "/", index);
    state.shape = weight.shape.With(0, slice.count);
    state.canonical = state.shape;
    state.slice = ParameterSlice{.of = weight.name,
                                 .first_row = slice.first,
                                 .all_rows = outputs_,
                                 .phase = static_cast<int>(index)};
    return state;
  }

  absl::Status Prepare(const InferInput& input, int64_t inputs, bool weight_gradient) {
    for (WeightSlice& slice : slices_) {
      GemmSpec forward{.dtype = compute_, .m = rows_, .n = slice.count, .k = inputs};
      forward.transpose_b = true;
      forward.bias = config_.use_bias();
      forward.activation = HasBound(input) ? Activation::kNone : input.output_activation;
      ASSIGN_OR_RETURN(slice.forward, input.primitives->Prepare(forward));
      if (!input.train) continue;
      if (weight_gradient) {
        GemmSpec weight{.dtype = compute_, .m = slice.count, .n = inputs, .k = rows_};
        weight.transpose_a = true;
        ASSIGN_OR_RETURN(slice.backward_weight, input.primitives->Prepare(weight));
      }
      if (!NeedsGradient(input, kX)) continue;
      const GemmSpec data{.dtype = compute_,
                          .m = rows_,
                          .n = inputs,
                          .k = slice.count,
                          .accumulate = slice.first > 0};
      ASSIGN_OR_RETURN(slice.backward_data, input.primitives->Prepare(data));
    }
    return absl::OkStatus();
  }

  // Enough for each product.
  size_t ScratchBytes() const {
    size_t bytes = 0;
    for (const WeightSlice& slice : slices_) {
      for (const auto* gemm : {&slice.forward, &slice.backward_weight, &slice.backward_data}) {
        if (*gemm != nullptr) bytes = std::max(bytes, (*gemm)->scratch_bytes());
      }
    }
    return bytes;
  }

  void* Scratch(const LayerContext& context) const {
    if (scratch_ < 0) return nullptr;
    return static_cast<std::byte*>(context.states[scratch_].data) + staged_bytes_;
  }

  absl::Status BackwardBias(const LayerContext& context) const {
    return VisitReal(compute_, [&]<typename T>() {
      return ReduceColumns(
          context.stream, rows_, outputs_,
          ColumnSum<T>{
              {}, outputs_, context.gradients[kY].as<T>(), context.gradients[bias_].as<T>()},
          Scratch(context));
    });
  }

  size_t BiasScratch(const InferInput& input) const {
    return OnGpu(input, ReduceColumnsScratch<ColumnSum<float>>(rows_, outputs_));
  }

  const DenseConfig config_;
  DType compute_ = DType::kF32;
  int64_t rows_ = 0, outputs_ = 0;
  int bias_ = -1, scratch_ = -1;  // states
  std::vector<WeightSlice> slices_;
  size_t staged_bytes_ = 0;  // scratch's beginning
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateDense(const DenseConfig& config) {
  RETURN_IF_ERROR(CheckExtent("outputs", config.outputs()));
  return std::make_unique<Dense>(config);
}

}  // namespace gyre
