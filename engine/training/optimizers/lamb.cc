// LAMB.  Moments are updated before norms are measured, and the change is computed anew from them
// where it is applied.

#include "engine/training/optimizers/trust_ratio.h"

namespace gyre {
namespace {

template <typename S, typename T = AccumulateType<S>>
struct MomentsStep {
  const UpdateScalars* update;
  T beta1, own1;  // own1 = 1 - beta1
  T beta2, own2;
  const S* gradient;
  T *first_moment, *second_moment;
  HOST_DEVICE void operator()(int64_t i) const {
    const T g = T{gradient[i]} * static_cast<T>(update->gradient_scale);
    first_moment[i] = beta1 * first_moment[i] + own1 * g;
    second_moment[i] = beta2 * second_moment[i] + own2 * g * g;
  }
};

// Before rate and ratio.
template <typename T>
struct LambChange {
  const UpdateScalars* update;
  int group;  // of the parameter
  T decay, epsilon;
  const T *value, *first_moment, *second_moment;
  HOST_DEVICE T operator()(int64_t i) const {
    const T correction1 = static_cast<T>(update->correction[group][0]);
    const T correction2 = static_cast<T>(update->correction[group][1]);
    const T moved =
        (first_moment[i] / correction1) / (std::sqrt(second_moment[i] / correction2) + epsilon);
    return moved + decay * value[i];
  }
};

template <typename S, typename T = AccumulateType<S>>
struct LambStep {
  LambChange<T> change;
  double rate_multiplier;
  const double* ratio;
  Updated<S> parameter;
  HOST_DEVICE void operator()(int64_t i) const {
    const T rate = static_cast<T>(change.update->learning_rate * rate_multiplier * *ratio);
    parameter.Set(i, parameter.value[i] - rate * change(i));
  }
};

struct LambTrust {
  HOST_DEVICE double operator()(double value, double change) const { return value / change; }
};

class Lamb : public Optimizer {
 public:
  Lamb(const OptimizerConfig::Lamb& config, double decay)
      : beta1_(config.beta1()), beta2_(config.beta2()), epsilon_(config.epsilon()), decay_(decay) {}

  std::vector<std::string> slot_names() const override { return {"first_moment", "second_moment"}; }

  bool scales_by_norms() const override { return true; }

  void Prepare(uint64_t step, UpdateScalars& scalars) const override {
    scalars.decay[0] = beta1_;
    scalars.decay[1] = beta2_;
    scalars.SetNumber(static_cast<double>(step));
  }

  absl::Status Measure(Stream& stream, const UpdateScalars* update,
                       std::span<const ParameterViews> parameters) const override {
    if (parameters.empty()) return absl::OkStatus();
    return VisitReal(parameters[0].value.dtype, [&]<typename S>() -> absl::Status {
      using T = AccumulateType<S>;
      RETURN_IF_ERROR(
          UpdateAll(stream, update, parameters, /*slots=*/2, [&](const ParameterViews& p) {
            return MomentsStep<S>{.update = update,
                                  .beta1 = static_cast<T>(beta1_),
                                  .own1 = static_cast<T>(1 - beta1_),
                                  .beta2 = static_cast<T>(beta2_),
                                  .own2 = static_cast<T>(1 - beta2_),
                                  .gradient = p.gradient.as<S>(),
                                  .first_moment = p.slots[0].as<T>(),
                                  .second_moment = p.slots[1].as<T>()};
          }));
      return MeasurePieces<S>(stream, parameters,
                              [&](const ParameterViews& p) { return ChangeOf<S>(update, p); });
    });
  }

  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    if (parameters.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(
        SetRatios(stream, parameters, [](const ParameterViews&) { return LambTrust{}; }));
    return VisitReal(parameters[0].value.dtype, [&]<typename S>() {
      return UpdateAll(stream, update, parameters, /*slots=*/2, [&](const ParameterViews& p) {
        return LambStep<S>{.change = ChangeOf<S>(update, p),
                           .rate_multiplier = p.learning_rate_multiplier,
                           .ratio = p.norms.ratio,
                           .parameter = Updated<S>(p)};
      });
    });
  }

 private:
  template <typename S, typename T = AccumulateType<S>>
  LambChange<T> ChangeOf(const UpdateScalars* update, const ParameterViews& p) const {
    return {.update = update,
            .group = p.group,
            .decay = static_cast<T>(decay_ * p.decay_multiplier),
            .epsilon = static_cast<T>(epsilon_),
            .value = Updated<S>(p).value,
            .first_moment = p.slots[0].as<T>(),
            .second_moment = p.slots[1].as<T>()};
  }

  const double beta1_, beta2_, epsilon_, decay_;
};

}  // namespace

std::unique_ptr<Optimizer> NewLamb(const OptimizerConfig::Lamb& config, double weight_decay) {
  return std::make_unique<Lamb>(config, weight_decay);
}

}  // namespace gyre
