// mean_squared_error, sigmoid_cross_entropy: the mean, over all elements of the global batch, of a
// number that depends on an element of the prediction x and of the target t.
//
// x, t: one shape; y: scalar, this rank's share of the mean.  With M the elements of the global
// batch, dx = dy l'(x) / M; a target that is computed has a gradient likewise.

#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/elementary.h"
#include "layers/mean_over_labels.h"

namespace gyre {
namespace {

constexpr int kX = 0, kT = 1, kMean = 2, kMetric = 3;  // states

// A formula: Value(x, t), and its slopes in x and t.

struct SquaredError {
  template <typename A>
  HOST_DEVICE A Value(A x, A t) const {
    return (x - t) * (x - t);
  }
  template <typename A>
  HOST_DEVICE A SlopeOfX(A x, A t) const {
    return 2 * (x - t);
  }
  template <typename A>
  HOST_DEVICE A SlopeOfT(A x, A t) const {
    return 2 * (t - x);
  }
};

// -t log s(x) - (1 - t) log(1 - s(x)) = log(1 + e^x) - t x, without an e^x that overflows.
struct LogisticLoss {
  template <typename A>
  HOST_DEVICE A Value(A x, A t) const {
    return (x < 0 ? 0 : x) - t * x + std::log1p(Exp(-std::fabs(x)));
  }
  template <typename A>
  HOST_DEVICE A SlopeOfX(A x, A t) const {
    return Logistic(x) - t;
  }
  template <typename A>
  HOST_DEVICE A SlopeOfT(A x, A) const {
    return -x;
  }
};

// One row whose columns are the elements.
template <typename T, typename Formula>
struct SumOverElements : Sum<double> {
  Formula formula;
  const T* x;
  const T* t;
  double count;
  double* metric;  // [2]

  HOST_DEVICE double Load(int64_t, int64_t i) const {
    using A = AccumulateType<T>;
    return static_cast<double>(formula.Value(static_cast<A>(x[i]), static_cast<A>(t[i])));
  }
  HOST_DEVICE void Store(int64_t, double sum) const {
    metric[0] = sum;
    metric[1] = count;
  }
};

template <typename T, typename Formula, bool kOfTarget>
struct ElementGradient {
  Formula formula;
  AccumulateType<T> share;  // 1 / M
  const T* x;
  const T* t;
  const T* dy;
  T* gradient;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const A a = x[i], b = t[i], scale = static_cast<A>(dy[0]) * share;
    gradient[i] =
        static_cast<T>(scale * (kOfTarget ? formula.SlopeOfT(a, b) : formula.SlopeOfX(a, b)));
  }
};

template <typename Formula>
class MeanOverElements : public Layer {
 public:
  explicit MeanOverElements(double loss_weight) : loss_weight_(loss_weight) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"prediction", input.compute}, {"target", input.compute}}));
    const Shape& shape = input.inputs[kX];
    if (!(input.inputs[kT] == shape)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects a target of the prediction's shape %s, got %s", shape.ToString(),
                          input.inputs[kT].ToString()));
    }
    ASSIGN_OR_RETURN(const int64_t sample_elements, SampleElements(input));
    RETURN_IF_ERROR(CommonBatchAxis(input).status());
    compute_ = input.compute;
    elements_ = shape.elements();
    global_elements_ =
        static_cast<double>(input.global_batch) * static_cast<double>(sample_elements);
    LayerSpec spec;
    const uint8_t read = InBackward(input, kRead);
    spec.states = {
        MakeState("prediction", StateKind::kInput, shape, compute_, kRead, read),
        MakeState("target", StateKind::kInput, shape, compute_, kRead, read),
        MakeState("output", StateKind::kOutput, Shape{}, compute_, kWrite, kNone),
        MakeState("metric", StateKind::kStatistic, Shape{2}, DType::kF64, kRead | kWrite, kNone)};
    spec.metric = kMetric;
    spec.loss_output = kMean;
    spec.loss_weight = loss_weight_;
    // A difference, a square and a sum; a difference and two products.  The other likewise.
    spec.forward_flops = 3 * static_cast<double>(elements_);
    spec.backward_flops = 3 * static_cast<double>(elements_);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    double* const metric = context.states[kMetric].as<double>();
    return VisitReal(compute_, [&]<typename T>() -> absl::Status {
      if (!context.recompute) {
        RETURN_IF_ERROR(ForEachRow(context.stream, 1, elements_,
                                   SumOverElements<T, Formula>{{},
                                                               {},
                                                               context.states[kX].as<T>(),
                                                               context.states[kT].as<T>(),
                                                               static_cast<double>(elements_),
                                                               metric}));
      }
      return ForEach(
          context.stream, 1,
          DivideByCount<T>{metric, {global_elements_, nullptr}, context.states[kMean].as<T>()});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    return VisitReal(compute_, [&]<typename T>() -> absl::Status {
      RETURN_IF_ERROR((Assign<T, false>(context, context.gradients[kX])));
      return Assign<T, true>(context, context.gradients[kT]);
    });
  }

 private:
  template <typename T, bool kOfTarget>
  absl::Status Assign(const LayerContext& context, const Tensor& gradient) const {
    if (!gradient) return absl::OkStatus();
    return ForEach(
        context.stream, elements_,
        ElementGradient<T, Formula, kOfTarget>{{},
                                               static_cast<AccumulateType<T>>(1 / global_elements_),
                                               context.states[kX].as<T>(),
                                               context.states[kT].as<T>(),
                                               context.gradients[kMean].as<T>(),
                                               gradient.as<T>()});
  }

  const double loss_weight_;
  DType compute_ = DType::kF32;
  int64_t elements_ = 0;
  double global_elements_ = 0;
};

template <typename Formula>
absl::StatusOr<std::unique_ptr<Layer>> Create(double loss_weight) {
  RETURN_IF_ERROR(CheckLossWeight(loss_weight));
  return std::make_unique<MeanOverElements<Formula>>(loss_weight);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateMeanSquaredError(
    const MeanSquaredErrorConfig& config) {
  return Create<SquaredError>(config.loss_weight());
}

absl::StatusOr<std::unique_ptr<Layer>> CreateSigmoidCrossEntropy(
    const SigmoidCrossEntropyConfig& config) {
  return Create<LogisticLoss>(config.loss_weight());
}

}  // namespace gyre
