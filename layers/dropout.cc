// dropout: zeroes each element with probability `rate` in training and scales the others by
// 1 / (1 - rate) (dropped.h).  Otherwise it is the identity, as a view.
// x, y: any shape, samples along any axis.

#include "layers/common/dropped.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1;  // states

class Dropout : public Layer {
 public:
  explicit Dropout(double rate) : rate_(rate) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& shape = input.inputs[0];
    ASSIGN_OR_RETURN(dropped_.sample_elements, SampleElements(input));
    const int axis = BatchAxis(input, 0);
    compute_ = input.compute;
    dropped_.rate = rate_;
    dropped_.samples = shape[axis];
    dropped_.inner = shape.elements(axis + 1, shape.rank());
    dropped_.key = input.random_key;
    identity_ = !input.train || rate_ == 0;
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, compute_, kRead, kNone),
                   MakeOutput(input, shape, kNone)};
    spec.aliases = {{.output = kY, .input = kX, .must = identity_}};
    if (!identity_) {
      spec.forward_flops = static_cast<double>(shape.elements());
      spec.backward_flops = spec.forward_flops;
    }
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return Apply(context, context.states[kX], context.states[kY]);
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[kX]) return absl::OkStatus();
    return Apply(context, context.gradients[kY], context.gradients[kX]);
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    onnx.Pass();
    return absl::OkStatus();
  }

 private:
  absl::Status Apply(const LayerContext& context, const Tensor& from, const Tensor& to) const {
    if (identity_) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return dropped_.Apply(context.stream, context.position, from.as<T>(), to.as<T>());
    });
  }

  const double rate_;
  DType compute_ = DType::kF32;
  Dropped dropped_;
  bool identity_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateDropout(const DropoutConfig& config) {
  RETURN_IF_ERROR(CheckBelowOne("rate", config.rate()));
  return std::make_unique<Dropout>(config.rate());
}

}  // namespace gyre
