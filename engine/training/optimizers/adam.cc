// Adam, AdamW and LAMB.  The bias corrections depend on the number of the update alone, so they are
// computed once, not for each element.  LAMB's moments are updated before norms are measured, and
// its change is computed anew from them where it is applied.

#include <cmath>

#include "engine/training/optimizers/trust_ratio.h"

namespace gyre {
namespace {

template <typename T>
struct AdamMoments {
  T beta1, own1;  // own1 = 1 - beta1
  T beta2, own2;
  T *first, *second;

  struct OfElement {
    T first, second;
  };
  // Updates those of element i by its gradient.
  HOST_DEVICE OfElement Update(int64_t i, T g) const {
    const T m = beta1 * first[i] + own1 * g;
    const T v = beta2 * second[i] + own2 * g * g;
    first[i] = m;
    second[i] = v;
    return {m, v};
  }
};

template <typename S, typename T = AccumulateType<S>>
struct AdamStep {
  const UpdateScalars* update;
  double rate_multiplier;
  T decay;      // of Adam: added to the gradient
  T own_decay;  // of AdamW: of the value itself
  T epsilon;
  int group;  // of the parameter
  Updated<S> parameter;
  AdamMoments<T> moments;
  HOST_DEVICE void operator()(int64_t i) const {
    const T rate = static_cast<T>(update->learning_rate * rate_multiplier);
    const T scale = static_cast<T>(update->gradient_scale);
    const T correction1 = static_cast<T>(update->correction[group][0]);
    const T correction2 = static_cast<T>(update->correction[group][1]);
    const T value = parameter.value[i];
    const auto [m, v] = moments.Update(i, T{parameter.gradient[i]} * scale + decay * value);
    const T decayed = value - rate * own_decay * value;
    parameter.Set(i, decayed - rate * (m / correction1) / (std::sqrt(v / correction2) + epsilon));
  }
};

template <typename S, typename T = AccumulateType<S>>
struct MomentsStep {
  const UpdateScalars* update;
  const S* gradient;
  AdamMoments<T> moments;
  HOST_DEVICE void operator()(int64_t i) const {
    moments.Update(i, T{gradient[i]} * static_cast<T>(update->gradient_scale));
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

class OfMoments : public Optimizer {
 public:
  template <typename Config>
  OfMoments(const Config& config, double decay)
      : beta1_(config.beta1()), beta2_(config.beta2()), epsilon_(config.epsilon()), decay_(decay) {}

  std::vector<std::string> slot_names() const override { return {"first_moment", "second_moment"}; }

  void Prepare(uint64_t step, UpdateScalars& scalars) const override {
    scalars.decay[0] = beta1_;
    scalars.decay[1] = beta2_;
    scalars.SetNumber(static_cast<double>(step));
  }

 protected:
  template <typename T>
  AdamMoments<T> MomentsOf(const ParameterViews& p) const {
    return {.beta1 = static_cast<T>(beta1_),
            .own1 = static_cast<T>(1 - beta1_),
            .beta2 = static_cast<T>(beta2_),
            .own2 = static_cast<T>(1 - beta2_),
            .first = p.slots[0].as<T>(),
            .second = p.slots[1].as<T>()};
  }

  const double beta1_, beta2_, epsilon_, decay_;
};

class Adam : public OfMoments {
 public:
  Adam(const OptimizerConfig::Adam& config, double decay, double own_decay)
      : OfMoments(config, decay), own_decay_(own_decay) {}

  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    const auto step = [&]<typename S>(const ParameterViews& p) {
      using T = AccumulateType<S>;
      return AdamStep<S>{.update = update,
                         .rate_multiplier = p.learning_rate_multiplier,
                         .decay = static_cast<T>(decay_ * p.decay_multiplier),
                         .own_decay = static_cast<T>(own_decay_ * p.decay_multiplier),
                         .epsilon = static_cast<T>(epsilon_),
                         .group = p.group,
                         .parameter = Updated<S>(p),
                         .moments = MomentsOf<T>(p)};
    };
    return UpdateEach(stream, update, parameters, /*slots=*/2, step);
  }

 private:
  const double own_decay_;
};

class Lamb : public OfMoments {
 public:
  using OfMoments::OfMoments;

  bool scales_by_norms() const override { return true; }

  absl::Status Measure(Stream& stream, const UpdateScalars* update,
                       std::span<const ParameterViews> parameters) const override {
    const auto step = [&]<typename S>(const ParameterViews& p) {
      return MomentsStep<S>{update, p.gradient.as<S>(), MomentsOf<AccumulateType<S>>(p)};
    };
    RETURN_IF_ERROR(UpdateAll(stream, update, parameters, /*slots=*/2, step));
    return MeasureChanges(stream, parameters, [&]<typename S>(const ParameterViews& p) {
      return ChangeOf<S>(update, p);
    });
  }

  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    RETURN_IF_ERROR(SetRatios(stream, parameters, /*coefficient=*/1, /*decay=*/0));
    const auto step = [&]<typename S>(const ParameterViews& p) {
      return LambStep<S>{.change = ChangeOf<S>(update, p),
                         .rate_multiplier = p.learning_rate_multiplier,
                         .ratio = p.norms.ratio,
                         .parameter = Updated<S>(p)};
    };
    return UpdateAll(stream, update, parameters, /*slots=*/2, step);
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
};

}  // namespace

std::unique_ptr<Optimizer> NewAdam(const OptimizerConfig::Adam& config, double weight_decay) {
  return std::make_unique<Adam>(config, weight_decay, 0);
}

std::unique_ptr<Optimizer> NewAdamW(const OptimizerConfig::Adam& config, double weight_decay) {
  return std::make_unique<Adam>(config, 0, weight_decay);
}

std::unique_ptr<Optimizer> NewLamb(const OptimizerConfig::Lamb& config, double weight_decay) {
  return std::make_unique<Lamb>(config, weight_decay);
}

}  // namespace gyre
