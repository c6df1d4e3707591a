// Stochastic gradient descent, plain and with momentum.

#include "engine/training/optimizer_parts.h"

namespace gyre {
namespace {

template <typename T>
struct PlainStep {
  const UpdateScalars* update;
  double rate_multiplier;
  T decay;
  const T* gradient;
  T* value;
  HOST_DEVICE void operator()(int64_t i) const {
    const T rate = static_cast<T>(update->learning_rate * rate_multiplier);
    const T scale = static_cast<T>(update->gradient_scale);
    value[i] -= rate * (gradient[i] * scale + decay * value[i]);
  }
};

template <typename T>
struct MomentumStep {
  const UpdateScalars* update;
  double rate_multiplier;
  T decay, momentum;
  // Nesterov moves by g + momentum * m, plain momentum by m: both by own * g + kept * m.
  T own, kept;
  const T* gradient;
  T* value;
  T* velocity;
  HOST_DEVICE void operator()(int64_t i) const {
    const T rate = static_cast<T>(update->learning_rate * rate_multiplier);
    const T scale = static_cast<T>(update->gradient_scale);
    const T g = gradient[i] * scale + decay * value[i];
    const T m = momentum * velocity[i] + g;
    velocity[i] = m;
    value[i] -= rate * (own * g + kept * m);
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

  void Prepare(uint64_t, UpdateScalars&) const override {}

  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    if (parameters.empty()) return absl::OkStatus();
    return VisitComputeType(parameters[0].value.dtype, [&]<typename T>() {
      const auto decay = [&](const ParameterViews& p) {
        return static_cast<T>(weight_decay_ * p.decay_multiplier);
      };
      if (momentum_ == 0) {
        return UpdateEach(stream, update, parameters, /*slots=*/0, [&](const ParameterViews& p) {
          return PlainStep<T>{update, p.learning_rate_multiplier, decay(p), p.gradient.as<T>(),
                              p.value.as<T>()};
        });
      }
      const T momentum = static_cast<T>(momentum_);
      return UpdateEach(stream, update, parameters, /*slots=*/1, [&](const ParameterViews& p) {
        return MomentumStep<T>{update,
                               p.learning_rate_multiplier,
                               decay(p),
                               momentum,
                               nesterov_ ? T{1} : T{0},
                               nesterov_ ? momentum : T{1},
                               p.gradient.as<T>(),
                               p.value.as<T>(),
                               p.slots[0].as<T>()};
      });
    });
  }

 private:
  const double momentum_;
  const bool nesterov_;
  const double weight_decay_;
};

}  // namespace

std::unique_ptr<Optimizer> NewSgd(const OptimizerConfig::Sgd& config, double weight_decay) {
  return std::make_unique<Sgd>(config.momentum(), config.nesterov(), weight_decay);
}

}  // namespace gyre
