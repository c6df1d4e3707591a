// An optimizer beside an exponential moving average of the values that it makes.  The average is a
// slot like others, so whatever pages, shards or saves slots does so with averages.

#include <utility>

#include "engine/training/optimizers/fused_update.h"

namespace gyre {
namespace {

// By the difference, so that the average of equal values is this value, in F32 too.  There
// decay and 1 - decay would not add up to 1.
template <typename T>
struct AverageStep {
  const UpdateScalars* update;
  T own;      // 1 - decay
  int group;  // of the parameter
  const T* value;
  T* average;
  HOST_DEVICE void operator()(int64_t i) const {
    const T next = average[i] + own * (value[i] - average[i]);
    average[i] = update->first[group] ? value[i] : next;
  }
};

class Average : public Optimizer {
 public:
  Average(std::unique_ptr<Optimizer> inner, double decay)
      : inner_(std::move(inner)), own_(1 - decay) {}

  std::vector<std::string> slot_names() const override {
    std::vector<std::string> names = inner_->slot_names();
    names.emplace_back(kAverageSlot);
    return names;
  }

  bool leaves_untouched(double decay_multiplier) const override {
    return inner_->leaves_untouched(decay_multiplier);
  }

  bool scales_by_norms() const override { return inner_->scales_by_norms(); }

  absl::Status Measure(Stream& stream, const UpdateScalars* update,
                       std::span<const ParameterViews> parameters) const override {
    return inner_->Measure(stream, update, WithoutAverage(parameters));
  }

  void Prepare(uint64_t step, UpdateScalars& scalars) const override {
    inner_->Prepare(step, scalars);
    scalars.SetNumber(static_cast<double>(step));
  }

  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    RETURN_IF_ERROR(inner_->Update(stream, update, WithoutAverage(parameters)));
    std::vector<ParameterViews> own(parameters.begin(), parameters.end());
    for (ParameterViews& views : own) views.slots = views.slots.last(1);
    // The average of a row that stands still moves towards it.
    return UpdateAll(stream, update, own, /*slots=*/1, [&]<typename S>(const ParameterViews& p) {
      using T = AccumulateType<S>;
      return AverageStep<T>{.update = update,
                            .own = static_cast<T>(own_),
                            .group = p.group,
                            .value = Updated<S>(p).value,
                            .average = p.slots[0].as<T>()};
    });
  }

 private:
  static std::vector<ParameterViews> WithoutAverage(std::span<const ParameterViews> parameters) {
    std::vector<ParameterViews> others(parameters.begin(), parameters.end());
    for (ParameterViews& views : others) views.slots = views.slots.first(views.slots.size() - 1);
    return others;
  }

  const std::unique_ptr<Optimizer> inner_;
  const double own_;
};

}  // namespace

std::unique_ptr<Optimizer> NewAverage(std::unique_ptr<Optimizer> inner, double decay) {
  return std::make_unique<Average>(std::move(inner), decay);
}

}  // namespace gyre
