// binary_cross_entropy, binary_hinge, max_hinge: means of w l(s x) over one score x a label.  For a
// label 1, s is 1 and w is positive_weight.  For a label 0, s is -1 and w is 1.
//
// x: [..., 1] scores; t: [...] labels; y: scalar, this rank's share of the mean.
// With M the global count, dx = dy w s l'(s x) / M at positions that count.  M and w have the
// sample's weight as a factor, if there are weights.
// max_hinge counts samples and takes the position of each sample with the highest score, which
// forward saves.
// Source of max_hinge: FRNN's MaxHingeTarget (github.com/PPPLDeepLearning/plasma-python,
// plasma/models/targets.py), which counts all positions with an equal highest score.

#include <cmath>

#include "engine/runtime/elementary.h"
#include "layers/common/global_mean.h"

namespace gyre {
namespace {

// A formula: l(m) and its slope, of the margin m = s x.  A NaN passes.

// log(1 + e^-m), without an e^-m that overflows.
struct Logistically {
  template <typename A>
  HOST_DEVICE A Value(A m) const {
    return (m < 0 ? -m : 0) + std::log1p(Exp(-std::fabs(m)));
  }
  template <typename A>
  HOST_DEVICE A Slope(A m) const {
    return -Logistic(-m);
  }
};

struct ByHinge {
  double margin;
  template <typename A>
  HOST_DEVICE A Value(A m) const {
    const A z = static_cast<A>(margin) - m;
    return z <= 0 ? 0 : z;
  }
  template <typename A>
  HOST_DEVICE A Slope(A m) const {
    return static_cast<A>(margin) - m <= 0 ? 0 : -1;
  }
};

// w l(s x) at position n, and its slope in x.
template <typename T, typename Formula>
struct Loss {
  using A = AccumulateType<T>;
  Formula formula;
  double positive_weight;
  const T* scores;

  HOST_DEVICE double operator()(int64_t n, int32_t label) const {
    const A x = scores[n];
    return label == 1 ? positive_weight * static_cast<double>(formula.Value(x))
                      : static_cast<double>(formula.Value(-x));
  }
  HOST_DEVICE A Slope(int64_t n, int32_t label) const {
    const A x = scores[n];
    return label == 1 ? static_cast<A>(positive_weight) * formula.Slope(x) : -formula.Slope(-x);
  }
};

struct Peak {
  double score;
  int64_t position;  // -1: none
};

// peak[n] = the position of sample n with the highest score, among those that count.
template <typename T>
struct PeakOfSample {
  using Value = Peak;
  Labels labels;
  const T* scores;
  int64_t* peak;
  Fault* fault;
  int layer;

  HOST_DEVICE Peak Identity() const { return {0, -1}; }
  // A NaN is higher than any number, so that the loss shows it.
  HOST_DEVICE Peak Combine(Peak a, Peak b) const {
    if (a.position < 0 || b.position < 0) return a.position < 0 ? b : a;
    const bool a_is_nan = a.score != a.score, b_is_nan = b.score != b.score;
    const bool equal = a.score == b.score || (a_is_nan && b_is_nan);
    if (equal) return a.position < b.position ? a : b;
    return a_is_nan || a.score > b.score ? a : b;
  }
  HOST_DEVICE Peak Load(int64_t n, int64_t k) const {
    const auto& [samples, inner, weights] = labels.weights;
    const int64_t position = (k / inner * samples + n) * inner + k % inner;
    if (labels.Bad(position)) RaiseFault(fault, layer, n);
    if (!labels.Counts(position)) return Identity();
    return {static_cast<double>(static_cast<AccumulateType<T>>(scores[position])), position};
  }
  HOST_DEVICE void Store(int64_t n, Peak v) const { peak[n] = v.position; }
};

// The term of a sample.
template <typename LossOfPosition>
struct PeakTerm {
  Labels labels;
  LossOfPosition loss;
  const int64_t* peak;

  HOST_DEVICE SumAndCount operator()(int64_t n) const {
    if (peak[n] < 0) return {0, 0};
    const double weight = labels.weights.Of(peak[n]);
    return {weight * loss(peak[n], labels.labels[peak[n]]), weight};
  }
};

template <typename T, typename Formula>
struct BinaryLossGradient {
  Labels labels;
  Loss<T, Formula> loss;
  const int64_t* peak;  // null: each position that counts
  Normaliser normaliser;
  const T* dy;
  T* dx;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const bool takes_part =
        peak == nullptr ? labels.Counts(i) : peak[labels.weights.SampleOf(i)] == i;
    if (!takes_part) {
      dx[i] = static_cast<T>(0);
      return;
    }
    const A slope = static_cast<A>(labels.weights.Of(i)) * loss.Slope(i, labels.labels[i]);
    dx[i] = static_cast<T>(static_cast<A>(dy[0]) * slope / static_cast<A>(normaliser()));
  }
};

template <typename Formula, bool kBySample>
class BinaryLoss : public MeanOverLabels {
 public:
  BinaryLoss(Formula formula, double loss_weight, double positive_weight,
             std::optional<int32_t> ignored)
      : formula_(formula),
        loss_weight_(loss_weight),
        positive_weight_(positive_weight),
        options_{.ignored = ignored, .binary = true, .by_sample = kBySample} {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(LayerSpec spec, InferMean(input, options_));
    spec.states[kScores].backward = InBackward(input, kRead);
    if (kBySample) {
      peak_ = AddState(spec, MakeState("peak", StateKind::kSaved, Shape{samples()}, DType::kI64,
                                       kRead | kWrite, InBackward(input, kRead)));
    }
    DeclareLoss(loss_weight_, spec);
    // Sign, formula (a handful), weight and sum.
    spec.forward_flops = 8.0 * static_cast<double>(rows());
    spec.backward_flops = spec.forward_flops;
    return spec;
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor& dx = context.gradients[kScores];
    if (!dx) return absl::OkStatus();
    return VisitReal(compute(), [&]<typename T>() {
      return ForEach(context.stream, rows(),
                     BinaryLossGradient<T, Formula>{LabelsOf(context), LossOf<T>(context),
                                                    PeakOf(context), NormaliserOf(context),
                                                    MeanGradient(context).as<T>(), dx.as<T>()});
    });
  }

 private:
  absl::Status SumTerms(const LayerContext& context) const override {
    return VisitReal(compute(), [&]<typename T>() {
      if constexpr (kBySample) {
        return SumPeaks<T>(context);
      } else {
        return SumLabels(context, LossOf<T>(context));
      }
    });
  }

  template <typename T>
  Loss<T, Formula> LossOf(const LayerContext& context) const {
    return {formula_, positive_weight_, context.states[kScores].as<T>()};
  }

  int64_t* PeakOf(const LayerContext& context) const {
    return peak_ < 0 ? nullptr : context.states[peak_].as<int64_t>();
  }

  template <typename T>
  absl::Status SumPeaks(const LayerContext& context) const {
    const Labels labels = LabelsOf(context);
    RETURN_IF_ERROR(ForEachRow(context.stream, samples(), positions(),
                               PeakOfSample<T>{labels, context.states[kScores].as<T>(),
                                               PeakOf(context), context.fault, context.layer}));
    return Sum(context, samples(),
               PeakTerm<Loss<T, Formula>>{labels, LossOf<T>(context), PeakOf(context)});
  }

  const Formula formula_;
  const double loss_weight_, positive_weight_;
  const LabelOptions options_;
  int peak_ = -1;  // state
};

template <bool kBySample = false, typename Formula, typename Config>
absl::StatusOr<std::unique_ptr<Layer>> Create(Formula formula, const Config& config) {
  RETURN_IF_ERROR(CheckNotNegative("loss_weight", config.loss_weight()));
  RETURN_IF_ERROR(CheckNotNegative("positive_weight", config.positive_weight()));
  return std::make_unique<BinaryLoss<Formula, kBySample>>(
      formula, config.loss_weight(), config.positive_weight(), IgnoredOf(config));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateBinaryCrossEntropy(
    const BinaryCrossEntropyConfig& config) {
  return Create(Logistically{}, config);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateBinaryHinge(const BinaryHingeConfig& config) {
  RETURN_IF_ERROR(CheckNotNegative("margin", config.margin()));
  return Create(ByHinge{config.margin()}, config);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateMaxHinge(const MaxHingeConfig& config) {
  RETURN_IF_ERROR(CheckNotNegative("margin", config.margin()));
  return Create</*kBySample=*/true>(ByHinge{config.margin()}, config);
}

}  // namespace gyre
