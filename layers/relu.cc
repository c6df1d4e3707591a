// relu: y = x if x > 0, otherwise negative_slope * x, and at most max.  x, y: any shape [N, ...].
// The sign of y is the sign of x, and y is max where x is cut.  So backward reads y alone, and the
// layer may work in place.

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/common/output_relu.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1;  // states

// !(x <= 0) lets a NaN through.  A slope of 0 must not make one from an infinity.  max is a T, so
// that y equals it, or NaN, which nothing exceeds, if there is no bound.
template <typename T>
struct ReluForward {
  AccumulateType<T> slope, max;
  const T* x;
  T* y;
  HOST_DEVICE T Load(int64_t i) const { return x[i]; }
  HOST_DEVICE void Store(int64_t i, T in) const {
    const AccumulateType<T> v = in;
    y[i] = static_cast<T>(v > max ? max : !(v <= 0) ? v : slope > 0 ? slope * v : 0);
  }
};

template <typename T>
struct ReluBackward {
  AccumulateType<T> slope, max;
  const T* y;
  const T* dy;
  T* dx;
  HOST_DEVICE OutputAndGradient<T> Load(int64_t i) const { return {y[i], dy[i]}; }
  HOST_DEVICE void Store(int64_t i, OutputAndGradient<T> in) const {
    const AccumulateType<T> v = in.dy;
    dx[i] = static_cast<T>(in.y >= max ? 0 : !(in.y <= 0) ? v : slope > 0 ? slope * v : 0);
  }
};

class Relu : public Layer {
 public:
  Relu(double slope, double max) : slope_(slope), max_(max) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& shape = input.inputs[0];
    RETURN_IF_ERROR(SampleElements(input).status());
    compute_ = input.compute;
    elements_ = shape.elements();
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, compute_, kRead, kNone),
                   MakeOutput(input, shape, InBackward(input, kRead))};
    spec.aliases = {{.output = kY, .input = kX, .must = false}};
    spec.forward_flops = static_cast<double>(elements_);
    spec.backward_flops = static_cast<double>(elements_);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(context.stream, elements_,
                     ReluForward<T>{static_cast<AccumulateType<T>>(slope_), Max<T>(),
                                    context.states[kX].as<T>(), context.states[kY].as<T>()});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[kX]) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(context.stream, elements_,
                     ReluBackward<T>{static_cast<AccumulateType<T>>(slope_), Max<T>(),
                                     context.states[kY].as<T>(), context.gradients[kY].as<T>(),
                                     context.gradients[kX].as<T>()});
    });
  }

  // Clip is exact, but OpenCV 4.6 reads only that of opset 10.  y - relu(y - max) is exact up to
  // 2 max, and errs by half a unit of y's last place beyond.
  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const OnnxForm form = onnx.Form();
    const std::string x = onnx.Input(kX, form);
    std::string y = slope_ == 0
                        ? onnx.Node("Relu", {x})
                        : onnx.Node("LeakyRelu", {x}, {{"alpha", static_cast<float>(slope_)}});
    if (!std::isnan(max_)) {
      const std::string max = onnx.Scalar(static_cast<float>(max_));
      y = onnx.Node("Sub", {y, onnx.Node("Relu", {onnx.Node("Sub", {y, max})})});
    }
    onnx.Output(0, y, form);
    return absl::OkStatus();
  }

 private:
  template <typename T>
  AccumulateType<T> Max() const {
    return static_cast<T>(static_cast<AccumulateType<T>>(max_));
  }

  const double slope_, max_;
  DType compute_ = DType::kF32;
  int64_t elements_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateRelu(const ReluConfig& config) {
  // A negative slope would make the sign of y useless, see above.
  RETURN_IF_ERROR(CheckNotNegative("negative_slope", config.negative_slope()));
  const double max = config.has_max() ? config.max() : std::numeric_limits<double>::quiet_NaN();
  if (config.has_max() && !(max > 0 && std::isfinite(max))) {
    return absl::InvalidArgumentError(absl::StrFormat("max: expected more than 0, got %g", max));
  }
  return std::make_unique<Relu>(config.negative_slope(), max);
}

}  // namespace gyre
