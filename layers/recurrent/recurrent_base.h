// recurrent_base.h: access of a recurrent layer's passes to its states, scratch, rows and products.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "layers/common/dropped.h"
#include "layers/recurrent/recurrent_plan.h"

namespace gyre {

class RecurrentBase {
 protected:
  using Options = RecurrentOptions;
  using Plan = RecurrentPlan;
  template <typename T>
  using Arrays = RecurrentScratch<T>;

  struct DirectionContext {
    const LayerContext& context;
    size_t layer, index;
    bool reverse() const { return index == 1; }
  };

  explicit RecurrentBase(Options options) : options_(std::move(options)) {}

  int64_t columns() const { return options_.directions() * options_.width(); }
  bool projects() const { return options_.projection > 0; }
  const Plan::Direction& StatesOf(const DirectionContext& direction) const {
    return plan_.layers[direction.layer].directions[direction.index];
  }
  bool IsTop(const DirectionContext& direction) const {
    return direction.layer + 1 == plan_.layers.size();
  }

  template <typename T>
  static T* At(const LayerContext& context, int state) {
    return state < 0 ? nullptr : static_cast<T*>(context.states[state].data);
  }
  template <typename T>
  static T* GradientAt(const LayerContext& context, int state) {
    return state < 0 ? nullptr : static_cast<T*>(context.gradients[state].data);
  }

  template <typename T>
  Arrays<T> ArraysOf(const LayerContext& context, bool backward) const {
    Arrays<T> arrays;
    LayOut(options_, plan_, backward,
           At<std::byte>(context, backward ? plan_.backward_scratch : plan_.scratch), arrays);
    return arrays;
  }

  // With packed rows, numbers them and gathers those of x.
  template <typename T>
  absl::Status TakeInput(const LayerContext& context, const Arrays<T>& arrays) const {
    if (!plan_.packs) return absl::OkStatus();
    const PackedRows& packed = arrays.packed;
    PackRows(plan_.rows, At<int32_t>(context, plan_.lengths), packed);
    std::fill_n(packed.zeros, std::max(columns(), plan_.inputs), 0);
    const T* const x = At<T>(context, 0);  // null where no gradient wants it
    return x == nullptr ? absl::OkStatus()
                        : Gather(context, plan_.inputs, x, arrays.inner_input, arrays);
  }

  // Gather copies rows from x's order to packed rows.  Spread copies them back, with zeros between.
  template <typename T>
  absl::Status Gather(const LayerContext& context, int64_t columns, const T* from, T* to,
                      const Arrays<T>& arrays) const {
    return TakeRows(context.stream, plan_.compute, RowCount(arrays), columns, arrays.packed.outer,
                    arrays.packed.zeros, {const_cast<T*>(from), columns}, {to, columns});
  }
  template <typename T>
  absl::Status Spread(const LayerContext& context, int64_t columns, const T* from, T* to,
                      const Arrays<T>& arrays) const {
    return TakeRows(context.stream, plan_.compute, plan_.row_count(), columns, arrays.packed.packed,
                    arrays.packed.zeros, {const_cast<T*>(from), columns}, {to, columns});
  }

  // Rows of all times, and samples with a row at the time of a step.
  template <typename T>
  int64_t RowCount(const Arrays<T>& arrays) const {
    return plan_.packs ? arrays.packed.first[plan_.rows.times] : plan_.row_count();
  }
  template <typename T>
  int64_t SamplesOf(const DirectionContext& direction, int64_t s, const Arrays<T>& arrays) const {
    return plan_.packs ? arrays.packed.alive[TimeOf(direction, s)] : plan_.rows.samples;
  }
  int64_t TimeOf(const DirectionContext& direction, int64_t s) const {
    return direction.reverse() ? plan_.rows.times - 1 - s : s;
  }

  bool PacksInScratch(const Gemm& gemm) const {
    return gemm.packed_bytes() > 0 && !plan_.stores_packed;
  }

  // The products of a pass's steps have one weight, which is packed before them.
  absl::Status PackWeight(const LayerContext& context, const Gemm* gemm, int weight,
                          std::byte* packed) const {
    if (gemm == nullptr || !PacksInScratch(*gemm)) return absl::OkStatus();
    return gemm->Pack(context.stream, At<void>(context, weight), packed);
  }
  absl::Status Multiply(const LayerContext& context, const Gemm& gemm, int64_t rows, const void* a,
                        int weight, const std::byte* packed, void* c, void* scratch) const {
    return Multiply(context, gemm, rows, a, WeightOf(context, gemm, weight, packed), c, scratch);
  }
  const void* WeightOf(const LayerContext& context, const Gemm& gemm, int weight,
                       const std::byte* packed) const {
    return PacksInScratch(gemm) ? packed : At<void>(context, weight);
  }
  absl::Status Multiply(const LayerContext& context, const Gemm& gemm, int64_t rows, const void* a,
                        const void* b, void* c, void* scratch) const {
    return plan_.packs ? gemm.RunRows(context.stream, rows, a, b, c, scratch)
                       : gemm.Run(context.stream, a, b, nullptr, c, scratch);
  }

  // x W_ih^T of one sample.  The rows of the first steps are computed before all steps, the others
  // `block` rows at a time beside the products of as many steps (Gemm::RunBeside).
  struct InputAhead {
    int64_t times, block, first;
    bool Has(int64_t s) const { return s + block >= first && s + block < times; }
    // The step of the first row that is computed beside step s, and the part.
    int64_t Begin(int64_t s) const { return s + block - Part(s); }
    int64_t Part(int64_t s) const { return (s + block - first) % block; }
  };
  // The last block's steps, and the first one, have nothing beside them.
  InputAhead AheadOf(const DirectionContext& direction) const {
    const int64_t times = plan_.rows.times;
    const int64_t block = plan_.step->rows_beside(*plan_.products(direction.layer).forward);
    if (plan_.packs || block == 0 || times <= 2 * block) return {times, 0, times};
    return {times, block, block + 1 + (times - block - 1) % block};
  }
  // The row of `steps` steps from step s on that is stored first.
  int64_t FirstRow(const DirectionContext& direction, int64_t s, int64_t steps) const {
    return direction.reverse() ? plan_.rows.times - s - steps : s;
  }

  template <typename T>
  absl::Status MultiplyInput(const DirectionContext& direction, const InputAhead& ahead, const T* x,
                             const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const Plan::Direction& states = StatesOf(direction);
    const Gemm& product = *plan_.products(direction.layer).forward;
    T* const gates = At<T>(context, states.gates);
    if (ahead.block == 0) {
      return Multiply(context, product, RowCount(arrays), x, states.weight_ih, arrays.input_weight,
                      gates, arrays.products);
    }
    const int64_t row = FirstRow(direction, 0, ahead.first);
    return product.RunRows(context.stream, ahead.first, x + row * InputsOf(direction),
                           WeightOf(context, product, states.weight_ih, arrays.input_weight),
                           gates + row * options_.gates(), arrays.products);
  }
  template <typename T>
  RowsBeside RowsAhead(const DirectionContext& direction, const InputAhead& ahead, int64_t s,
                       const T* x, const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const Plan::Direction& states = StatesOf(direction);
    const Gemm& product = *plan_.products(direction.layer).forward;
    const int64_t inputs = InputsOf(direction);
    const int64_t row = FirstRow(direction, ahead.Begin(s), ahead.block);
    return {.k = inputs,
            .a = x + row * inputs,
            .b = WeightOf(context, product, states.weight_ih, arrays.input_weight),
            .c = At<T>(context, states.gates) + row * options_.gates(),
            .part = ahead.Part(s)};
  }
  int64_t InputsOf(const DirectionContext& direction) const {
    return direction.layer == 0 ? plan_.inputs : columns();
  }

  // A layer's output, in the order of its own rows.
  template <typename T>
  T* Output(const LayerContext& context, size_t layer, const Arrays<T>& arrays) const {
    const bool packed = plan_.packs && layer + 1 == plan_.layers.size();
    return packed ? arrays.inner_output : At<T>(context, plan_.layers[layer].output);
  }

  // A layer's input, after dropout.
  template <typename T>
  absl::StatusOr<const T*> Input(const LayerContext& context, size_t layer,
                                 const Arrays<T>& arrays) const {
    if (layer == 0) return plan_.packs ? arrays.inner_input : At<T>(context, 0);
    const T* const before = At<T>(context, plan_.layers[layer - 1].output);
    if (!plan_.drops) return before;
    RETURN_IF_ERROR(Drop(context, layer - 1, before, arrays.input, arrays));
    return arrays.input;
  }

  // Applies the dropout behind `layer`.  Elements have the masks of x's rows.
  template <typename T>
  absl::Status Drop(const LayerContext& context, size_t layer, const T* from, T* to,
                    const Arrays<T>& arrays) const {
    const auto apply = [&](const T* given, T* result) {
      return dropped_[layer].Apply(context.stream, context.position, given, result);
    };
    if (!plan_.packs) return apply(from, to);
    RETURN_IF_ERROR(Spread(context, columns(), from, arrays.spread, arrays));
    RETURN_IF_ERROR(apply(arrays.spread, arrays.spread));
    return Gather(context, columns(), arrays.spread, to, arrays);
  }

  template <typename T>
  absl::Status Zero(Stream& stream, int64_t rows, int64_t columns, T* to) const {
    return ZeroCells(stream, kDTypeOf<T>, rows, columns, {to, columns});
  }

  template <typename T>
  absl::Status Mark(const DirectionContext& direction, const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    return ForEachCell(
        context.stream, plan_.rows.times + 1, plan_.rows.samples,
        MarkSteps{plan_.rows, direction.reverse(), options_.carry, arrays.packed.order,
                  At<int32_t>(context, plan_.lengths), At<int32_t>(context, plan_.reset),
                  arrays.marks, context.fault, context.layer});
  }

  template <typename T>
  Step StepOf(const DirectionContext& direction, int64_t s, const Arrays<T>& arrays) const {
    const int64_t t = TimeOf(direction, s);
    const int32_t* const marks = arrays.marks + s * plan_.rows.samples;
    const int32_t* const next = marks + plan_.rows.samples;
    if (plan_.packs) return {arrays.packed.first[t], 1, marks, next};
    return {plan_.rows(t, 0), plan_.rows.sample_step, marks, next};
  }

  template <typename E, typename T>
  absl::Status TakeCarried(const DirectionContext& direction, int state, int64_t columns, E* to,
                           const Arrays<T>& arrays) const {
    return TakeRows(direction.context.stream, kDTypeOf<E>, plan_.rows.samples, columns,
                    arrays.packed.order, arrays.packed.zeros,
                    {At<E>(direction.context, state), columns}, {to, columns});
  }

  // An lstm's c after step s.  The last of them is c before the first step.  Without backward all
  // have one place.
  template <typename T>
  T* CellsOf(const DirectionContext& direction, int64_t s, const Arrays<T>& arrays) const {
    const int64_t first = plan_.backward ? FirstOf(direction, s, arrays) : 0;
    return At<T>(direction.context, StatesOf(direction).cells) + first * options_.hidden;
  }

  // The first row of a step in an array by steps.
  template <typename T>
  int64_t FirstOf(const DirectionContext& direction, int64_t s, const Arrays<T>& arrays) const {
    return plan_.packs && s < plan_.rows.times ? arrays.packed.first[TimeOf(direction, s)]
                                               : s * plan_.rows.samples;
  }

  const Options options_;
  Plan plan_;
  std::vector<Dropped> dropped_;  // between layers
};

}  // namespace gyre
