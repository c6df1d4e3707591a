// bucket_views.h: a range of a bucket, as an optimizer updates it.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/training/net/plan/net_plan.h"
#include "engine/training/optimizers/optimizer.h"

namespace gyre {

struct BucketViews {
  BucketViews() = default;
  BucketViews(BucketViews&&) = default;  // `parameters` points into `slots`
  BucketViews& operator=(BucketViews&&) = default;

  std::vector<Tensor> slots;
  std::vector<ParameterViews> parameters;
};

// Where a range of a parameter is.
struct RangeMemory {
  absl::FunctionRef<Tensor(const ParameterRange&)> value, gradient;
  absl::FunctionRef<Tensor(int array, const ParameterRange&)> slot;  // masters come last
  std::byte* norms = nullptr;                                        // NormsBytes
};

inline BucketViews ViewsIn(const NetPlan& plan, const ParameterSet& parameters, int bucket,
                           ElementRange range, const RangeMemory& memory) {
  const int kinds = plan.slots.kinds();
  const std::vector<MeasuredPart> parts = PartsIn(plan.order, plan.pieces, bucket, range);
  BucketViews views;
  views.slots.reserve(parts.size() * kinds);
  for (const MeasuredPart& part : parts) {
    for (int kind = 0; kind < kinds; ++kind) views.slots.push_back(memory.slot(kind, part));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const MeasuredPart& part = parts[i];
    const StateSpec& spec = parameters.all()[part.parameter].spec;
    views.parameters.push_back(
        {.value = memory.value(part),
         .gradient = memory.gradient(part),
         .slots = std::span(views.slots).subspan(i * kinds, kinds),
         .learning_rate_multiplier = spec.learning_rate_multiplier,
         .decay_multiplier = spec.decay_multiplier,
         .group = plan.spec.shape.GroupOf(spec.trainable_from),
         .master = plan.slots.has_master(bucket) ? memory.slot(kinds, part) : Tensor{},
         .norms = NormsOf(plan.pieces, part, memory.norms)});
  }
  return views;
}

}  // namespace gyre
