// Adam and AdamW.  The bias corrections depend on the number of the update alone, so they are
// computed once, not for each element.

#include <cmath>

#include "engine/training/optimizers/fused_update.h"

namespace gyre {
namespace {

template <typename S, typename T = AccumulateType<S>>
struct AdamStep {
  const UpdateScalars* update;
  double rate_multiplier;
  T decay;        // of Adam: added to the gradient
  T own_decay;    // of AdamW: of the value itself
  T beta1, own1;  // own1 = 1 - beta1
  T beta2, own2;
  T epsilon;
  int group;  // of the parameter
  Updated<S> parameter;
  T* first_moment;
  T* second_moment;
  HOST_DEVICE void operator()(int64_t i) const {
    const T rate = static_cast<T>(update->learning_rate * rate_multiplier);
    const T scale = static_cast<T>(update->gradient_scale);
    const T correction1 = static_cast<T>(update->correction[group][0]);
    const T correction2 = static_cast<T>(update->correction[group][1]);
    const T value = parameter.value[i];
    const T g = T{parameter.gradient[i]} * scale + decay * value;
    const T m = beta1 * first_moment[i] + own1 * g;
    const T v = beta2 * second_moment[i] + own2 * g * g;
    first_moment[i] = m;
    second_moment[i] = v;
    const T decayed = value - rate * own_decay * value;
    parameter.Set(i, decayed - rate * (m / correction1) / (std::sqrt(v / correction2) + epsilon));
  }
};

class Adam : public Optimizer {
 public:
  Adam(const OptimizerConfig::Adam& config, double decay, double own_decay)
      : beta1_(config.beta1()),
        beta2_(config.beta2()),
        epsilon_(config.epsilon()),
        decay_(decay),
        own_decay_(own_decay) {}

  std::vector<std::string> slot_names() const override { return {"first_moment", "second_moment"}; }

  void Prepare(uint64_t step, UpdateScalars& scalars) const override {
    scalars.decay[0] = beta1_;
    scalars.decay[1] = beta2_;
    scalars.SetNumber(static_cast<double>(step));
  }

  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    if (parameters.empty()) return absl::OkStatus();
    return VisitReal(parameters[0].value.dtype, [&]<typename S>() {
      using T = AccumulateType<S>;
      return UpdateEach(stream, update, parameters, /*slots=*/2, [&](const ParameterViews& p) {
        return AdamStep<S>{.update = update,
                           .rate_multiplier = p.learning_rate_multiplier,
                           .decay = static_cast<T>(decay_ * p.decay_multiplier),
                           .own_decay = static_cast<T>(own_decay_ * p.decay_multiplier),
                           .beta1 = static_cast<T>(beta1_),
                           .own1 = static_cast<T>(1 - beta1_),
                           .beta2 = static_cast<T>(beta2_),
                           .own2 = static_cast<T>(1 - beta2_),
                           .epsilon = static_cast<T>(epsilon_),
                           .group = p.group,
                           .parameter = Updated<S>(p),
                           .first_moment = p.slots[0].as<T>(),
                           .second_moment = p.slots[1].as<T>()};
      });
    });
  }

 private:
  const double beta1_, beta2_, epsilon_, decay_, own_decay_;
};

}  // namespace

std::unique_ptr<Optimizer> NewAdam(const OptimizerConfig::Adam& config, double weight_decay) {
  return std::make_unique<Adam>(config, weight_decay, 0);
}

std::unique_ptr<Optimizer> NewAdamW(const OptimizerConfig::Adam& config, double weight_decay) {
  return std::make_unique<Adam>(config, 0, weight_decay);
}

}  // namespace gyre
