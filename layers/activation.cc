// sigmoid, tanh, gelu, silu: y = f(x).  x, y: any shape [N, ...].
// The formula chooses what backward reads.  If the slope is a simple function of y, backward reads
// y and the layer may work in place.  Otherwise it reads x.

#include <numbers>

#include "engine/runtime/elementary.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1;  // states

// A formula: Value(x), and Slope of y (kOfOutput) or of x.

struct SigmoidFormula {
  static constexpr bool kOfOutput = true;
  template <typename A>
  HOST_DEVICE A Value(A x) const {
    return Logistic(x);
  }
  template <typename A>
  HOST_DEVICE A Slope(A y) const {
    return y * (1 - y);
  }
  static std::string ToOnnx(OnnxWriter& onnx, const std::string& x) {
    return onnx.Node("Sigmoid", {x});
  }
};

struct TanhFormula {
  static constexpr bool kOfOutput = true;
  template <typename A>
  HOST_DEVICE A Value(A x) const {
    return Tanh(x);
  }
  template <typename A>
  HOST_DEVICE A Slope(A y) const {
    return 1 - y * y;
  }
  static std::string ToOnnx(OnnxWriter& onnx, const std::string& x) {
    return onnx.Node("Tanh", {x});
  }
};

// x times the logistic function of x.
struct SiluFormula {
  static constexpr bool kOfOutput = false;
  template <typename A>
  HOST_DEVICE A Value(A x) const {
    return x * Logistic(x);
  }
  template <typename A>
  HOST_DEVICE A Slope(A x) const {
    const A s = Logistic(x);
    return s + x * s * (1 - s);
  }
  static std::string ToOnnx(OnnxWriter& onnx, const std::string& x) {
    return onnx.Node("Mul", {x, onnx.Node("Sigmoid", {x})});
  }
};

// Hendrycks & Gimpel 2016, arXiv:1606.08415: x times the normal distribution function of x.
struct GeluFormula {
  static constexpr bool kOfOutput = false;
  template <typename A>
  HOST_DEVICE A Value(A x) const {
    return x * NormalCdf(x);
  }
  template <typename A>
  HOST_DEVICE A Slope(A x) const {
    constexpr A kDensity = static_cast<A>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return NormalCdf(x) + x * kDensity * Exp(A{-0.5} * x * x);
  }
  // The operator Gelu is of opset 20, which readers of 2023 lack.
  static std::string ToOnnx(OnnxWriter& onnx, const std::string& x) {
    const std::string scaled =
        onnx.Node("Div", {x, onnx.Scalar(static_cast<float>(std::numbers::sqrt2))});
    const std::string twice = onnx.Node("Add", {onnx.Node("Erf", {scaled}), onnx.Scalar(1)});
    return onnx.Node("Mul", {onnx.Node("Mul", {x, twice}), onnx.Scalar(0.5f)});
  }
};

// The same source's approximation: (1 + tanh u) / 2, which is the logistic function of 2 u, for the
// normal distribution function.
struct TanhGeluFormula {
  static constexpr bool kOfOutput = false;
  template <typename A>
  HOST_DEVICE A Value(A x) const {
    return x * Share(x);
  }
  template <typename A>
  HOST_DEVICE A Slope(A x) const {
    const A s = Share(x);
    return s + x * s * (1 - s) * static_cast<A>(kScale) * (1 + 3 * static_cast<A>(kCube) * x * x);
  }
  static std::string ToOnnx(OnnxWriter& onnx, const std::string& x) {
    const std::string cube = onnx.Node("Mul", {onnx.Node("Mul", {x, x}), x});
    const std::string sum =
        onnx.Node("Add", {x, onnx.Node("Mul", {cube, onnx.Scalar(static_cast<float>(kCube))})});
    const std::string scaled = onnx.Node("Mul", {sum, onnx.Scalar(static_cast<float>(kScale))});
    return onnx.Node("Mul", {x, onnx.Node("Sigmoid", {scaled})});
  }

 private:
  static constexpr double kScale = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  static constexpr double kCube = 0.044715;

  template <typename A>
  HOST_DEVICE static A Share(A x) {
    return Logistic(static_cast<A>(kScale) * (x + static_cast<A>(kCube) * x * x * x));
  }
};

template <typename T, typename Formula>
struct ActivationForward {
  Formula formula;
  const T* x;
  T* y;
  HOST_DEVICE T Load(int64_t i) const {
    return static_cast<T>(formula.Value(static_cast<AccumulateType<T>>(x[i])));
  }
  HOST_DEVICE void Store(int64_t i, T v) const { y[i] = v; }
};

template <typename T, typename Formula>
struct ActivationBackward {
  Formula formula;
  const T* read;  // y or x
  const T* dy;
  T* dx;
  HOST_DEVICE T Load(int64_t i) const {
    using A = AccumulateType<T>;
    return static_cast<T>(static_cast<A>(dy[i]) * formula.Slope(static_cast<A>(read[i])));
  }
  HOST_DEVICE void Store(int64_t i, T v) const { dx[i] = v; }
};

template <typename Formula>
class ActivationLayer : public Layer {
 public:
  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& shape = input.inputs[0];
    RETURN_IF_ERROR(SampleElements(input).status());
    compute_ = input.compute;
    elements_ = shape.elements();
    LayerSpec spec;
    const auto read = [&](bool it) { return it ? InBackward(input, kRead) : uint8_t{kNone}; };
    spec.states = {
        MakeState("input", StateKind::kInput, shape, compute_, kRead, read(!Formula::kOfOutput)),
        MakeOutput(input, shape, read(Formula::kOfOutput))};
    spec.aliases = {{.output = kY, .input = kX, .must = false}};
    // Counted as one operation an element, as other frameworks' counters do.
    spec.forward_flops = static_cast<double>(elements_);
    spec.backward_flops = static_cast<double>(elements_);
    spec.cheap = true;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    const Tensor &x = context.states[kX], &y = context.states[kY];
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(context.stream, elements_,
                     ActivationForward<T, Formula>{{}, x.as<T>(), y.as<T>()});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor &dx = context.gradients[kX], &dy = context.gradients[kY];
    const Tensor& read = context.states[Formula::kOfOutput ? kY : kX];
    if (!dx) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(context.stream, elements_,
                     ActivationBackward<T, Formula>{{}, read.as<T>(), dy.as<T>(), dx.as<T>()});
    });
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const OnnxForm form = onnx.Form();
    onnx.Output(0, Formula::ToOnnx(onnx, onnx.Input(kX, form)), form);
    return absl::OkStatus();
  }

 private:
  DType compute_ = DType::kF32;
  int64_t elements_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateSigmoid(const SigmoidConfig&) {
  return std::make_unique<ActivationLayer<SigmoidFormula>>();
}

absl::StatusOr<std::unique_ptr<Layer>> CreateTanh(const TanhConfig&) {
  return std::make_unique<ActivationLayer<TanhFormula>>();
}

absl::StatusOr<std::unique_ptr<Layer>> CreateSilu(const SiluConfig&) {
  return std::make_unique<ActivationLayer<SiluFormula>>();
}

absl::StatusOr<std::unique_ptr<Layer>> CreateGelu(const GeluConfig& config) {
  if (config.approximate() == GeluConfig::TANH) {
    return std::make_unique<ActivationLayer<TanhGeluFormula>>();
  }
  return std::make_unique<ActivationLayer<GeluFormula>>();
}

}  // namespace gyre
