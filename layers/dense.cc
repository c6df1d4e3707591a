// dense: y = x W^T + b over the last axis.
//
// x: [..., I], seen as [R, I]; W: [O, I]; b: [O]; y: [..., O].  By the chain rule
//   dx = dy W,  dW = dy^T x,  db = the sum of dy over R.

#include <algorithm>

#include "engine/runtime/parallel/column_sum.h"
#include "layers/infer.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1, kWeight = 2, kBias = 3;  // states; scratch follows if there is any

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
    Initializer weights{.kind = Initializer::Kind::kXavier, .fan_in = inputs, .fan_out = outputs_};
    ASSIGN_OR_RETURN(const StateSpec weight,
                     MakeParameter("weight", Shape{outputs_, inputs}, config_.weight(), weights,
                                   input, data_gradient ? kRead : kNone));
    RETURN_IF_ERROR(Prepare(input, inputs, weight.trained()));
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, x, compute_, kRead,
                             InBackward(input, weight.trained() ? kRead : kNone)),
                   MakeOutput(input, x.With(x.rank() - 1, outputs_), kNone), weight};
    if (config_.use_bias()) {
      Initializer zeros{.fan_in = inputs, .fan_out = outputs_};
      ASSIGN_OR_RETURN(StateSpec bias,
                       MakeParameter("bias", Shape{outputs_}, config_.bias(), zeros, input, kNone));
      spec.states.push_back(std::move(bias));
    }
    if (const size_t bytes = ScratchBytes(); bytes > 0) {
      scratch_ = static_cast<int>(spec.states.size());
      const uint8_t access = kRead | kWrite;
      spec.states.push_back(
          MakeBytes("scratch", StateKind::kScratch, bytes, access, InBackward(input, access)));
    }
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
    return forward_->Run(context.stream, states[kX].data, states[kWeight].data,
                         config_.use_bias() ? states[kBias].data : nullptr, states[kY].data,
                         Scratch(context));
  }

  absl::Status Backward(const LayerContext& context) const override {
    const std::span<const Tensor> gradients = context.gradients;
    const void* dy = gradients[kY].data;
    if (gradients[kWeight]) {
      RETURN_IF_ERROR(backward_weight_->Run(context.stream, dy, context.states[kX].data, nullptr,
                                            gradients[kWeight].data, Scratch(context)));
    }
    if (config_.use_bias() && gradients[kBias]) RETURN_IF_ERROR(BackwardBias(context));
    if (!gradients[kX]) return absl::OkStatus();
    return backward_data_->Run(context.stream, dy, context.states[kWeight].data, nullptr,
                               gradients[kX].data, Scratch(context));
  }

 private:
  absl::Status Prepare(const InferInput& input, int64_t inputs, bool weight_gradient) {
    GemmSpec forward{.dtype = compute_, .m = rows_, .n = outputs_, .k = inputs};
    forward.transpose_b = true;
    forward.bias = config_.use_bias();
    forward.activation = HasBound(input) ? Activation::kNone : input.output_activation;
    ASSIGN_OR_RETURN(forward_, input.primitives->Prepare(forward));
    if (!input.train) return absl::OkStatus();
    if (weight_gradient) {
      GemmSpec weight{.dtype = compute_, .m = outputs_, .n = inputs, .k = rows_};
      weight.transpose_a = true;
      ASSIGN_OR_RETURN(backward_weight_, input.primitives->Prepare(weight));
    }
    if (!NeedsGradient(input, kX)) return absl::OkStatus();
    const GemmSpec data{.dtype = compute_, .m = rows_, .n = inputs, .k = outputs_};
    ASSIGN_OR_RETURN(backward_data_, input.primitives->Prepare(data));
    return absl::OkStatus();
  }

  // Enough for each of the three.
  size_t ScratchBytes() const {
    size_t bytes = 0;
    for (const Gemm* gemm : {forward_.get(), backward_weight_.get(), backward_data_.get()}) {
      if (gemm != nullptr) bytes = std::max(bytes, gemm->scratch_bytes());
    }
    return bytes;
  }

  void* Scratch(const LayerContext& context) const {
    return scratch_ < 0 ? nullptr : context.states[scratch_].data;
  }

  absl::Status BackwardBias(const LayerContext& context) const {
    return VisitReal(compute_, [&]<typename T>() {
      return ReduceColumns(
          context.stream, rows_, outputs_,
          ColumnSum<T>{
              {}, outputs_, context.gradients[kY].as<T>(), context.gradients[kBias].as<T>()});
    });
  }

  const DenseConfig config_;
  DType compute_ = DType::kF32;
  int64_t rows_ = 0, outputs_ = 0;
  int scratch_ = -1;  // state
  std::unique_ptr<Gemm> forward_, backward_data_, backward_weight_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateDense(const DenseConfig& config) {
  RETURN_IF_ERROR(CheckExtent("outputs", config.outputs()));
  return std::make_unique<Dense>(config);
}

}  // namespace gyre
