// hinge: the mean over the global batch of l_n = sum_{c != t_n} z[n, c]^p / C, with
// z[n, c] = max(0, margin - x[n, t_n] + x[n, c]) and p 1 or 2.
//
// x: [..., C] scores; t: [...] labels; y: scalar, this rank's share of the mean.
// With M the global count, dx[n, c] = dy w_n p z[n, c]^(p - 1) / (C M) if z[n, c] > 0, where w_n is
// the sample's weight, or 1.  dx[n, t_n] is minus the sum of the others of its row.
// Source: Weston & Watkins 1999, "Support vector machines for multi-class pattern recognition",
// ESANN.

#include "layers/common/global_mean.h"

namespace gyre {
namespace {

template <typename T>
struct Excess {
  using A = AccumulateType<T>;
  Labels labels;
  int64_t classes;
  A margin;
  bool squared;
  const T* scores;

  // z[n, c], or 0 for the label's class and a label that does not count.  A NaN passes.
  HOST_DEVICE A Of(int64_t n, int64_t c) const {
    if (!labels.Counts(n) || c == labels.labels[n]) return 0;
    const A own = scores[n * classes + labels.labels[n]], other = scores[n * classes + c];
    const A z = margin - own + other;
    return z <= 0 ? 0 : z;
  }
  HOST_DEVICE A Value(int64_t n, int64_t c) const {
    const A z = Of(n, c);
    return squared ? z * z : z;
  }
  HOST_DEVICE A Slope(int64_t n, int64_t c) const {
    const A z = Of(n, c);
    return squared ? 2 * z : z == 0 ? 0 : 1;
  }
};

// losses[n] = l_n.
template <typename T>
struct LossOfRow : SumReduction<double> {
  Excess<T> excess;
  double* losses;
  HOST_DEVICE double Load(int64_t n, int64_t c) const {
    return static_cast<double>(excess.Value(n, c));
  }
  HOST_DEVICE void Store(int64_t n, double sum) const {
    losses[n] = sum / static_cast<double>(excess.classes);
  }
};

struct LossOf {
  const double* losses;
  HOST_DEVICE double operator()(int64_t n, int32_t) const { return losses[n]; }
};

template <typename T>
struct HingeGradient : SumReduction<AccumulateType<T>> {
  using A = AccumulateType<T>;
  Excess<T> excess;
  Normaliser normaliser;
  const T* dy;
  T* dx;
  HOST_DEVICE A Load(int64_t n, int64_t c) const { return excess.Slope(n, c); }
  HOST_DEVICE A Finish(A sum) const { return sum; }
  HOST_DEVICE void Apply(int64_t n, int64_t c, A sum) const {
    const A slope = c == excess.labels.labels[n] ? -sum : excess.Slope(n, c);
    const A scale = static_cast<A>(dy[0]) / static_cast<A>(excess.classes);
    const A weight = static_cast<A>(excess.labels.weights.Of(n));
    const bool counts = excess.labels.Counts(n);
    dx[n * excess.classes + c] =
        static_cast<T>(counts ? weight * (scale * slope) / static_cast<A>(normaliser()) : 0);
  }
};

class Hinge : public MeanOverLabels {
 public:
  explicit Hinge(const HingeConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(LayerSpec spec, InferMean(input, {.ignored = IgnoredOf(config_)}));
    spec.states[kScores].backward = InBackward(input, kRead);
    losses_ = AddState(spec, MakeState("losses", StateKind::kScratch, Shape{rows()}, DType::kF64,
                                       kRead | kWrite, kNone));
    DeclareLoss(config_.loss_weight(), spec);
    // Two differences, the maximum, the power and the sum.
    spec.forward_flops = 5.0 * static_cast<double>(rows() * classes());
    spec.backward_flops = spec.forward_flops;
    return spec;
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor& dx = context.gradients[kScores];
    if (!dx) return absl::OkStatus();
    return VisitReal(compute(), [&]<typename T>() {
      return TransformRows(context.stream, rows(), classes(),
                           HingeGradient<T>{{},
                                            ExcessOf<T>(context),
                                            NormaliserOf(context),
                                            MeanGradient(context).as<T>(),
                                            dx.as<T>()});
    });
  }

 private:
  absl::Status SumTerms(const LayerContext& context) const override {
    double* const losses = context.states[losses_].as<double>();
    RETURN_IF_ERROR(VisitReal(compute(), [&]<typename T>() {
      return ForEachRow(context.stream, rows(), classes(),
                        LossOfRow<T>{{}, ExcessOf<T>(context), losses});
    }));
    return SumLabels(context, LossOf{losses});
  }

  template <typename T>
  Excess<T> ExcessOf(const LayerContext& context) const {
    return {LabelsOf(context), classes(), static_cast<AccumulateType<T>>(config_.margin()),
            config_.norm() == HingeConfig::L2, context.states[kScores].as<T>()};
  }

  const HingeConfig config_;
  int losses_ = -1;  // state
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateHinge(const HingeConfig& config) {
  RETURN_IF_ERROR(CheckNotNegative("loss_weight", config.loss_weight()));
  RETURN_IF_ERROR(CheckNotNegative("margin", config.margin()));
  return std::make_unique<Hinge>(config);
}

}  // namespace gyre
