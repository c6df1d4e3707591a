// LARS: momentum of changes whose rate each parameter's norms scale.

#include "engine/training/optimizers/trust_ratio.h"

namespace gyre {
namespace {

template <typename S, typename T = AccumulateType<S>>
struct ScaledGradient {
  const UpdateScalars* update;
  const S* gradient;
  HOST_DEVICE T operator()(int64_t i) const {
    return T{gradient[i]} * static_cast<T>(update->gradient_scale);
  }
};

template <typename S, typename T = AccumulateType<S>>
struct LarsStep {
  ScaledGradient<S> gradient;
  double rate_multiplier;
  T decay, momentum;
  const double* ratio;
  Updated<S> parameter;
  T* velocity;
  HOST_DEVICE void operator()(int64_t i) const {
    const T rate = static_cast<T>(gradient.update->learning_rate * rate_multiplier * *ratio);
    const T value = parameter.value[i];
    const T v = momentum * velocity[i] + rate * (gradient(i) + decay * value);
    velocity[i] = v;
    parameter.Set(i, value - v);
  }
};

class Lars : public Optimizer {
 public:
  Lars(const OptimizerConfig::Lars& config, double decay)
      : momentum_(config.momentum()), coefficient_(config.coefficient()), decay_(decay) {}

  std::vector<std::string> slot_names() const override { return {"momentum"}; }

  bool scales_by_norms() const override { return true; }

  absl::Status Measure(Stream& stream, const UpdateScalars* update,
                       std::span<const ParameterViews> parameters) const override {
    return MeasureChanges(stream, parameters, [&]<typename S>(const ParameterViews& p) {
      return ScaledGradient<S>{update, p.gradient.as<S>()};
    });
  }

  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    RETURN_IF_ERROR(SetRatios(stream, parameters, coefficient_, decay_));
    const auto step = [&]<typename S>(const ParameterViews& p) {
      using T = AccumulateType<S>;
      return LarsStep<S>{.gradient = {update, p.gradient.as<S>()},
                         .rate_multiplier = p.learning_rate_multiplier,
                         .decay = static_cast<T>(decay_ * p.decay_multiplier),
                         .momentum = static_cast<T>(momentum_),
                         .ratio = p.norms.ratio,
                         .parameter = Updated<S>(p),
                         .velocity = p.slots[0].as<T>()};
    };
    return UpdateAll(stream, update, parameters, /*slots=*/1, step);
  }

 private:
  const double momentum_, coefficient_, decay_;
};

}  // namespace

std::unique_ptr<Optimizer> NewLars(const OptimizerConfig::Lars& config, double weight_decay) {
  return std::make_unique<Lars>(config, weight_decay);
}

}  // namespace gyre
