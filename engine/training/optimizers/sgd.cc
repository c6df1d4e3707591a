// Stochastic gradient descent, plain and with momentum.

#include "engine/training/optimizers/fused_update.h"

namespace gyre {
namespace {

template <typename S, typename T = AccumulateType<S>>
struct PlainStep {
  const UpdateScalars* update;
  double rate_multiplier;
  T decay;
  Updated<S> parameter;
  HOST_DEVICE void operator()(int64_t i) const {
    const T rate = static_cast<T>(update->learning_rate * rate_multiplier);
    const T scale = static_cast<T>(update->gradient_scale);
    const T value = parameter.value[i];
    parameter.Set(i, value - rate * (T{parameter.gradient[i]} * scale + decay * value));
  }
};

template <typename S, typename T = AccumulateType<S>>
struct MomentumStep {
  const UpdateScalars* update;
  double rate_multiplier;
  T decay, momentum;
  // Nesterov moves by g + momentum * m, plain momentum by m: both by own * g + kept * m.
  T own, kept;
  Updated<S> parameter;
  T* velocity;
  HOST_DEVICE void operator()(int64_t i) const {
    const T rate = static_cast<T>(update->learning_rate * rate_multiplier);
    const T scale = static_cast<T>(update->gradient_scale);
    const T value = parameter.value[i];
    const T g = T{parameter.gradient[i]} * scale + decay * value;
    const T m = momentum * velocity[i] + g;
    velocity[i] = m;
    parameter.Set(i, value - rate * (own * g + kept * m));
  }
};

class Sgd : public Optimizer {
 public:
  Sgd(double momentum, bool nesterov, double weight_decay)
      : momentum_(momentum), nesterov_(nesterov), weight_decay_(weight_decay) {}

  std::vector<std::string> slot_names() const override {
    if (momentum_ == 0) return {};
    return {"momentum"};
  }

  bool leaves_untouched(double decay_multiplier) const override {
    return momentum_ == 0 && weight_decay_ * decay_multiplier == 0;
  }

  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    if (momentum_ == 0) {
      const auto step = [&]<typename S>(const ParameterViews& p) {
        return PlainStep<S>{update, p.learning_rate_multiplier, DecayOf<S>(p), Updated<S>(p)};
      };
      return UpdateEach(stream, update, parameters, /*slots=*/0, step);
    }
    const auto step = [&]<typename S, typename T = AccumulateType<S>>(const ParameterViews& p) {
      const T momentum = static_cast<T>(momentum_);
      return MomentumStep<S>{update,        p.learning_rate_multiplier, DecayOf<S>(p),
                             momentum,      nesterov_ ? T{1} : T{0},    nesterov_ ? momentum : T{1},
                             Updated<S>(p), p.slots[0].as<T>()};
    };
    return UpdateEach(stream, update, parameters, /*slots=*/1, step);
  }

 private:
  template <typename S>
  AccumulateType<S> DecayOf(const ParameterViews& p) const {
    return static_cast<AccumulateType<S>>(weight_decay_ * p.decay_multiplier);
  }

  const double momentum_;
  const bool nesterov_;
  const double weight_decay_;
};

}  // namespace

std::unique_ptr<Optimizer> NewSgd(const OptimizerConfig::Sgd& config, double weight_decay) {
  return std::make_unique<Sgd>(config.momentum(), config.nesterov(), weight_decay);
}

}  // namespace gyre
