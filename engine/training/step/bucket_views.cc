#include "engine/training/step/bucket_views.h"

namespace gyre {

BucketViews ViewsIn(const NetPlan& plan, const ParameterSet& parameters, int bucket,
                    ElementRange range, const RangeMemory& memory) {
  const int kinds = plan.slots.kinds();
  const std::vector<MeasuredPart> parts =
      PartsIn(plan.order, parameters, plan.pieces, bucket, range);
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
