// fused_update.h: an optimizer's step over many parameters as one loop.  For optimizers alone.
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "engine/runtime/parallel/parallel.h"
#include "engine/training/optimizers/optimizer.h"

namespace gyre {

// A parameter stored as S and updated in T.  For 16 bits T is F32, and its master is updated.
template <typename S>
struct Updated {
  using T = AccumulateType<S>;
  const S* gradient;
  T* value;
  S* stored;

  Updated() = default;  // a GPU's table of parameters has spare entries
  explicit Updated(const ParameterViews& views)
      : gradient(views.gradient.as<S>()), stored(views.value.as<S>()) {
    if constexpr (std::is_same_v<S, T>) {
      value = stored;
    } else {
      value = views.master.as<T>();
    }
  }

  HOST_DEVICE void Set(int64_t i, T next) const {
    value[i] = next;
    if constexpr (!std::is_same_v<S, T>) stored[i] = S(next);
  }
};

// `step` updates one element.  This one updates the elements of table rows that a shard has.
template <typename Step>
struct RowStep {
  Step step;
  const bool* skip;
  const int32_t* rows;
  int64_t width, begin, count;
  HOST_DEVICE void operator()(int64_t k, int64_t column) const {
    const int64_t i = int64_t{rows[k]} * width + column - begin;
    if (rows[k] >= 0 && i >= 0 && i < count && !*skip) step(i);
  }
};

// `step.operator()<S>(parameter)` returns the functor that updates one element of a parameter that
// is stored as S.  Each parameter has `slots` slots.
template <typename S, typename MakeStep>
auto PartsOf(std::span<const ParameterViews> parameters, size_t slots, const MakeStep& step) {
  std::vector<FusedLoop<decltype(step.template operator()<S>(parameters[0]))>> parts;
  for (const ParameterViews& parameter : parameters) {
    const int64_t n = parameter.value.elements();
    const DType dtype = parameter.value.dtype, updated = AccumulateDType(dtype);
    GYRE_CHECK(dtype == parameters[0].value.dtype && dtype == parameter.gradient.dtype);
    GYRE_CHECK(parameter.gradient.elements() == n && parameter.slots.size() == slots);
    for (const Tensor& slot : parameter.slots) {
      GYRE_CHECK(slot.elements() == n && slot.dtype == updated);
    }
    GYRE_CHECK(updated == dtype || parameter.master.elements() == n);
    parts.push_back({n, step.template operator()<S>(parameter)});
  }
  return parts;
}

// All elements, also of a table touched by rows, unless the update is skipped.  Enqueues.
template <typename MakeStep>
absl::Status UpdateAll(Stream& stream, const UpdateScalars* update,
                       std::span<const ParameterViews> parameters, size_t slots,
                       const MakeStep& step) {
  if (parameters.empty()) return absl::OkStatus();
  return VisitReal(parameters[0].value.dtype, [&]<typename S>() {
    return ForEachPart(stream, PartsOf<S>(parameters, slots, step), &update->skip);
  });
}

// Of a table touched by rows those alone, else all elements, unless the update is skipped.
// Enqueues.
template <typename MakeStep>
absl::Status UpdateEach(Stream& stream, const UpdateScalars* update,
                        std::span<const ParameterViews> parameters, size_t slots,
                        const MakeStep& step) {
  if (parameters.empty() || !parameters[0].rows) {
    return UpdateAll(stream, update, parameters, slots, step);
  }
  const ParameterViews& first = parameters[0];
  return VisitReal(first.value.dtype, [&]<typename S>() -> absl::Status {
    const auto parts = PartsOf<S>(parameters, slots, step);
    for (size_t i = 0; i < parts.size(); ++i) {
      GYRE_CHECK(parameters[i].rows.data == first.rows.data);
      RETURN_IF_ERROR(ForEachCell(
          stream, first.rows.elements(), first.width,
          RowStep<decltype(parts[i].f)>{parts[i].f, &update->skip, first.rows.as<int32_t>(),
                                        first.width, parameters[i].begin, parts[i].n}));
    }
    return absl::OkStatus();
  });
}

}  // namespace gyre
