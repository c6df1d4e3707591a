// softmax: y = e^x / sum e^x over the last axis.  x, y: [..., C].
// dx = y (dy - sum y dy).  Backward reads y alone, so the layer may work in place.

#include "engine/runtime/parallel/parallel.h"
#include "layers/common/softmax_pass.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1;  // states

template <typename T>
struct SoftmaxRows : SoftmaxPass<AccumulateType<T>> {
  using A = AccumulateType<T>;
  using Value = MaxAndExpSum<A>;
  int64_t columns;
  const T* x;
  T* y;

  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    return {static_cast<A>(x[row * columns + column]), 1};
  }
  HOST_DEVICE void Apply(int64_t row, int64_t column, Value v) const {
    const int64_t i = row * columns + column;
    y[i] = static_cast<T>(Exp(static_cast<A>(x[i]) - v.largest) * v.sum);
  }
};

template <typename T>
struct SoftmaxGradient : SumReduction<AccumulateType<T>> {
  using A = AccumulateType<T>;
  int64_t columns;
  const T* y;
  const T* dy;
  T* dx;

  HOST_DEVICE A Load(int64_t row, int64_t column) const {
    const int64_t i = row * columns + column;
    return static_cast<A>(y[i]) * static_cast<A>(dy[i]);
  }
  HOST_DEVICE A Finish(A sum) const { return sum; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, A sum) const {
    const int64_t i = row * columns + column;
    dx[i] = static_cast<T>(static_cast<A>(y[i]) * (static_cast<A>(dy[i]) - sum));
  }
};

class Softmax : public Layer {
 public:
  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& shape = input.inputs[kX];
    ASSIGN_OR_RETURN(rows_, RowsOf(input, "x", "channels"));
    compute_ = input.compute;
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, compute_, kRead, kNone),
                   MakeOutput(input, shape, InBackward(input, kRead))};
    spec.aliases = {{.output = kY, .input = kX, .must = false}};
    // Maximum, difference, exponential, sum, quotient; product, sum, difference, product.
    spec.forward_flops = 5 * static_cast<double>(shape.elements());
    spec.backward_flops = 4 * static_cast<double>(shape.elements());
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return VisitReal(compute_, [&]<typename T>() {
      return TransformRows(
          context.stream, rows_.count, rows_.columns,
          SoftmaxRows<T>{
              {}, rows_.columns, context.states[kX].as<T>(), context.states[kY].as<T>()});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[kX]) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return TransformRows(context.stream, rows_.count, rows_.columns,
                           SoftmaxGradient<T>{{},
                                              rows_.columns,
                                              context.states[kY].as<T>(),
                                              context.gradients[kY].as<T>(),
                                              context.gradients[kX].as<T>()});
    });
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const OnnxForm form = onnx.Form().kind == OnnxForm::kChannelsFirst ? onnx.Form() : OnnxForm{};
    const int64_t axis = form == OnnxForm{} ? onnx.shape(kX).rank() - 1 : 1;
    onnx.Output(0, onnx.Node("Softmax", {onnx.Input(kX, form)}, {{"axis", axis}}), form);
    return absl::OkStatus();
  }

 private:
  DType compute_ = DType::kF32;
  Rows rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateSoftmax(const SoftmaxConfig&) {
  return std::make_unique<Softmax>();
}

}  // namespace gyre
