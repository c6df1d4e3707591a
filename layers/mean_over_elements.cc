// mean_squared_error, sigmoid_cross_entropy, time_to_event: the mean of l(x, t) over the elements
// of the global batch whose target counts.
//
// x, t: one shape, a prediction and its target; y: scalar, this rank's share of the mean.
// With M the sum of the weights of the elements that count, 1 each without weights,
// dx = dy w l'(x) / M.  A computed target has a gradient likewise.

#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/elementary.h"
#include "layers/common/global_mean.h"

namespace gyre {
namespace {

constexpr int kX = 0, kT = 1;  // states

// A formula: Value(x, t), its slopes in x and t, and which targets count.

struct AllCount {
  static constexpr bool kSomeDoNot = false;
  template <typename A>
  HOST_DEVICE bool Counts(A) const {
    return true;
  }
};

struct SquaredError : AllCount {
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
struct LogisticLoss : AllCount {
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

// (x + log10(min(t, horizon) + offset))^2, where t is not below 0.  A NaN counts.
struct ErrorOfLogTime {
  static constexpr bool kSomeDoNot = true;
  double horizon, offset;

  template <typename A>
  HOST_DEVICE bool Counts(A t) const {
    return !(t < 0);
  }
  template <typename A>
  HOST_DEVICE A Error(A x, A t) const {
    const A most = static_cast<A>(horizon);
    return x + std::log10((t > most ? most : t) + static_cast<A>(offset));
  }
  template <typename A>
  HOST_DEVICE A Value(A x, A t) const {
    return Error(x, t) * Error(x, t);
  }
  template <typename A>
  HOST_DEVICE A SlopeOfX(A x, A t) const {
    return 2 * Error(x, t);
  }
  template <typename A>
  HOST_DEVICE A SlopeOfT(A x, A t) const {
    if (t > static_cast<A>(horizon)) return 0;
    const A ln_10 = static_cast<A>(2.302585092994045684);
    return 2 * Error(x, t) / ((t + static_cast<A>(offset)) * ln_10);
  }
};

// In place of SampleWeights, whose look-up keeps a CPU from vectorising.
struct EqualWeights {
  HOST_DEVICE double Of(int64_t) const { return 1; }
};

template <typename T, typename Formula, typename Weights>
struct ElementTerm {
  Formula formula;
  Weights weights;
  const T* x;
  const T* t;

  HOST_DEVICE SumAndCount operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const A a = x[i], b = t[i];
    const double weight = weights.Of(i);
    if (!formula.Counts(b) || weight == 0) return {0, 0};
    return {weight * static_cast<double>(formula.Value(a, b)), weight};
  }
};

template <typename T, typename Formula, typename Weights, bool kOfTarget>
struct ElementGradient {
  Formula formula;
  Weights weights;
  Normaliser normaliser;
  const T* x;
  const T* t;
  const T* dy;
  T* gradient;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const A a = x[i], b = t[i];
    const A weight = static_cast<A>(weights.Of(i));
    if (!formula.Counts(b) || weight == 0) {
      gradient[i] = static_cast<T>(0);
      return;
    }
    const A scale = weight * (static_cast<A>(dy[0]) * static_cast<A>(1 / normaliser()));
    gradient[i] =
        static_cast<T>(scale * (kOfTarget ? formula.SlopeOfT(a, b) : formula.SlopeOfX(a, b)));
  }
};

template <typename Formula>
class MeanOverElements : public GlobalMean {
 public:
  MeanOverElements(Formula formula, double loss_weight)
      : formula_(formula), loss_weight_(loss_weight) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    const InferInput pair = WithoutWeights(input);
    RETURN_IF_ERROR(CheckInputs(pair, {{"prediction", input.compute}, {"target", input.compute}}));
    const Shape& shape = input.inputs[kX];
    if (!(input.inputs[kT] == shape)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects a target of the prediction's shape %s, got %s", shape.ToString(),
                          input.inputs[kT].ToString()));
    }
    ASSIGN_OR_RETURN(const int64_t sample_elements, SampleElements(input));
    ASSIGN_OR_RETURN(const int axis, CommonBatchAxis(pair));
    elements_ = shape.elements();
    samples_ = shape[axis];
    inner_ = shape.elements(axis + 1, shape.rank());
    LayerSpec spec;
    const uint8_t read = InBackward(input, kRead);
    spec.states = {MakeState("prediction", StateKind::kInput, shape, input.compute, kRead, read),
                   MakeState("target", StateKind::kInput, shape, input.compute, kRead, read)};
    RETURN_IF_ERROR(Declare(
        input, static_cast<double>(input.global_batch) * static_cast<double>(sample_elements),
        Formula::kSomeDoNot ? "elements from 0" : "", spec));
    scratch_ = AddScratch(
        spec,
        OnGpu(input, ForEachRowScratch<SumOverTerms<ElementTerm<float, Formula, EqualWeights>>>(
                         1, elements_)),
        kRead | kWrite, kNone);
    DeclareLoss(loss_weight_, spec);
    // A difference, a square and a sum; a difference and two products.  The other likewise.
    spec.forward_flops = 3 * static_cast<double>(elements_);
    spec.backward_flops = 3 * static_cast<double>(elements_);
    return spec;
  }

  absl::Status Backward(const LayerContext& context) const override {
    return VisitReal(compute(), [&]<typename T>() -> absl::Status {
      RETURN_IF_ERROR((Assign<T, false>(context, context.gradients[kX])));
      return Assign<T, true>(context, context.gradients[kT]);
    });
  }

 private:
  absl::Status SumTerms(const LayerContext& context) const override {
    return VisitReal(compute(), [&]<typename T>() {
      return WithWeights(context, [&]<typename Weights>(Weights weights) {
        return Sum(context, elements_,
                   ElementTerm<T, Formula, Weights>{formula_, weights, context.states[kX].as<T>(),
                                                    context.states[kT].as<T>()},
                   context.data(scratch_));
      });
    });
  }

  template <typename T, bool kOfTarget>
  absl::Status Assign(const LayerContext& context, const Tensor& gradient) const {
    if (!gradient) return absl::OkStatus();
    return WithWeights(context, [&]<typename Weights>(Weights weights) {
      return ForEach(
          context.stream, elements_,
          ElementGradient<T, Formula, Weights, kOfTarget>{
              formula_, weights, NormaliserOf(context), context.states[kX].as<T>(),
              context.states[kT].as<T>(), MeanGradient(context).as<T>(), gradient.as<T>()});
    });
  }

  // Calls `call` with the elements' weights.
  template <typename Call>
  absl::Status WithWeights(const LayerContext& context, const Call& call) const {
    const double* const weights = WeightsOf(context);
    if (weights == nullptr) return call(EqualWeights{});
    return call(SampleWeights{samples_, inner_, weights});
  }

  const Formula formula_;
  const double loss_weight_;
  int scratch_ = -1;  // state
  int64_t elements_ = 0, samples_ = 0, inner_ = 0;
};

template <typename Formula>
absl::StatusOr<std::unique_ptr<Layer>> Create(Formula formula, double loss_weight) {
  RETURN_IF_ERROR(CheckNotNegative("loss_weight", loss_weight));
  return std::make_unique<MeanOverElements<Formula>>(formula, loss_weight);
}

absl::Status CheckPositive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: expected a time above 0, got %g", field, value));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateMeanSquaredError(
    const MeanSquaredErrorConfig& config) {
  return Create(SquaredError{}, config.loss_weight());
}

absl::StatusOr<std::unique_ptr<Layer>> CreateSigmoidCrossEntropy(
    const SigmoidCrossEntropyConfig& config) {
  return Create(LogisticLoss{}, config.loss_weight());
}

absl::StatusOr<std::unique_ptr<Layer>> CreateTimeToEvent(const TimeToEventConfig& config) {
  RETURN_IF_ERROR(CheckPositive("horizon", config.horizon()));
  RETURN_IF_ERROR(CheckPositive("offset", config.offset()));
  return Create(ErrorOfLogTime{config.horizon(), config.offset()}, config.loss_weight());
}

}  // namespace gyre
