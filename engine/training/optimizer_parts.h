// optimizer_parts.h: an optimizer's step over many parameters as one loop; for optimizers alone.
#pragma once

#include <utility>
#include <vector>

#include "engine/runtime/parallel/parallel.h"
#include "engine/training/optimizer.h"

namespace gyre {

// step(parameter): the functor that moves one element of it, unless the update is to be skipped.
// slots: how many each must have.
template <typename MakeStep>
absl::Status UpdateEach(Stream& stream, const UpdateScalars* update,
                        std::span<const ParameterViews> parameters, size_t slots,
                        const MakeStep& step) {
  std::vector<Part<decltype(step(parameters[0]))>> parts;
  for (const ParameterViews& parameter : parameters) {
    const int64_t n = parameter.value.elements();
    GYRE_CHECK(parameter.value.dtype == parameters[0].value.dtype);
    GYRE_CHECK(parameter.gradient.elements() == n && parameter.slots.size() == slots);
    for (const Tensor& slot : parameter.slots) GYRE_CHECK(slot.elements() == n);
    parts.push_back({n, step(parameter)});
  }
  return ForEachPart(stream, std::move(parts), &update->skip);
}

}  // namespace gyre
