#include "engine/training/net/infer/inference_passes.h"
#include "engine/training/net/infer/net_kernels.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

class ConversionLayer : public Layer {
 public:
  explicit ConversionLayer(DType to) : to_(to) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    LayerSpec spec;
    spec.states = {
        MakeState("input", StateKind::kInput, input.inputs[0], input.dtypes[0], kRead, kNone),
        MakeState("output", StateKind::kOutput, input.inputs[0], to_, kWrite, kNone)};
    spec.states[1].batch_axis = input.batch_axes[0];
    spec.cheap = true;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return Convert(context.stream, context.states[0], context.states[1]);
  }

  absl::Status Backward(const LayerContext& context) const override {
    return Convert(context.stream, context.gradients[1], context.gradients[0]);
  }

  // A model in ONNX is of F32 alone.
  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    onnx.Pass();
    return absl::OkStatus();
  }

 private:
  const DType to_;
};

}  // namespace

std::unique_ptr<Layer> NewConversion(DType to) { return std::make_unique<ConversionLayer>(to); }

}  // namespace gyre
