// recurrent_plan.h: options, states, products and scratch of a recurrent layer with any cell.  Made
// once for a shape.  The layer runs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/math.h"
#include "layers/interface/infer.h"
#include "layers/recurrent/recurrent_rows.h"

namespace gyre {

struct RecurrentOptions {
  enum Cell { kLstm, kGru, kTanh, kRelu };
  Cell cell = kLstm;
  int64_t hidden = 0, layers = 1;
  bool bidirectional = false, carry = false, last = false;
  double dropout = 0;
  int64_t projection = 0;  // 0: none
  ParameterConfig weight, recurrent, bias, projection_weight;

  int directions() const { return bidirectional ? 2 : 1; }
  int64_t width() const { return projection > 0 ? projection : hidden; }  // of h
  int64_t gates() const {  // columns of a row of gates
    return hidden * (cell == kLstm ? 4 : cell == kGru ? 3 : 1);
  }
};

// Errors: InvalidArgument naming the field.
absl::Status Check(const RecurrentOptions& options);

struct RecurrentPlan {
  // States of one layer and direction, or -1.
  struct Direction {
    int weight_ih = -1, weight_hh = -1, bias_ih = -1, bias_hh = -1, weight_hr = -1;
    int gates = -1;              // [rows, gates]
    int cells = -1;              // lstm: [T + 1, N, hidden], by steps, then c before the first step
                                 // (without backward [1, N, hidden])
    int candidates = -1;         // gru: [rows, hidden]
    int hidden = -1, cell = -1;  // carried; the next state is the next batch's
  };
  struct LayerStates {
    std::vector<Direction> directions;
    int output;  // [rows, directions x width]
  };
  // Products with the weight of a layer's input.
  struct InputProducts {
    std::unique_ptr<Gemm> forward, dweight, dinput, add_dinput;
  };

  DType compute = DType::kF32;
  SequenceRows rows{};
  int64_t inputs = 0;            // columns of x
  int lengths = -1, reset = -1;  // states; -1: none
  int output = 0, last = -1;     // states
  int scratch = 0, backward_scratch = -1;
  std::vector<LayerStates> layers;
  bool backward = false;    // there is a backward pass
  bool drops = false;       // between layers
  bool packs = false;       // rows: see recurrent_rows.h
  bool by_parts = false;    // RunRows makes the weights' gradients
  bool sums_steps = false;  // biases' gradients add up step by step, with a step's gates in a cache
  bool previous = false;    // backward needs h' of every row
  bool stores_packed = false;                     // weights, as their products want them
  InputProducts first, other;                     // of the first layer, and the others
  std::unique_ptr<Gemm> step, dstep, dweight_hh;  // h' W_hh^T; dgates W_hh; dgates^T h'
  std::unique_ptr<Gemm> project, dproject, dweight_hr;

  int64_t row_count() const { return rows.times * rows.samples; }
  const InputProducts& products(size_t layer) const { return layer == 0 ? first : other; }
  // The forward product with a weight that is stored packed, or null for another state.
  const Gemm* ProductOf(int weight) const;
  size_t product_scratch() const;  // most bytes of a product
};

// The scratch of a pass.  rows: of all steps.  columns: directions x width.
template <typename T>
struct RecurrentScratch {
  PackedRows packed;
  T* inner_input;   // packed: x, or its gradient
  T* inner_output;  // packed: the layer's output
  T* spread;        // packed, both passes: a layer's output in x's order, for dropout
  int32_t* marks;
  T* hidden;                // the running state, [N, width]; backward its gradient
  AccumulateType<T>* cell;  // lstm's c, [N, hidden]; backward its gradient; gru: see GruBackward
  T* gates;                 // of a step, [N, gates]: W_hh h'; backward its gradient
  T* unprojected;           // of a step, [N, hidden]: lstm's h before the projection; likewise
  T* projected;             // of a step, [N, width]; likewise
  T* dprojected;            // backward: gradients of `projected` of all steps
  T* last;                  // backward, [N, width]: gradient of h after a sample's last step
  T* previous;              // backward, [rows, width]: h'
  T* zeros;                 // backward, [columns]: each row of an output's unbound gradient
  T* input;                 // [rows, columns]: output of the layer before, after dropout
  T* doutput;               // backward, [rows, columns]: gradient of a layer's output
  std::byte* input_weight;  // packed weight of the product of all rows
  std::byte* step_weight;   // packed weight of the steps' products
  std::byte* projection_weight;
  std::byte* products;
};

// Sets the addresses of scratch from `base` on (null: to null).  Returns the bytes of all.
template <typename T>
size_t LayOut(const RecurrentOptions& options, const RecurrentPlan& plan, bool backward,
              std::byte* base, RecurrentScratch<T>& scratch) {
  size_t bytes = 0;
  const auto take = [&]<typename E>(E*& array, int64_t elements) {
    array = base == nullptr ? nullptr : reinterpret_cast<E*>(base + bytes);
    bytes += RoundUp(static_cast<size_t>(elements) * sizeof(E), size_t{256});
  };
  scratch = {};
  const int64_t samples = plan.rows.samples, rows = plan.row_count();
  const int64_t hidden = options.hidden, width = options.width();
  const int64_t columns = options.directions() * width;
  if (plan.packs) {
    PackedRows& packed = scratch.packed;
    take(packed.alive, plan.rows.times + 1);
    take(packed.first, plan.rows.times + 1);
    take(packed.order, samples);
    take(packed.place, samples);
    take(packed.outer, rows);
    take(packed.packed, rows);
    take(packed.zeros, std::max(columns, plan.inputs));
    take(scratch.inner_input, rows * plan.inputs);
    take(scratch.inner_output, rows * columns);
    if (plan.drops) take(scratch.spread, rows * columns);
  }
  take(scratch.marks, (plan.rows.times + 1) * samples);
  take(scratch.hidden, samples * width);
  const bool has_cell = options.cell == RecurrentOptions::kLstm;
  if (has_cell || (backward && options.cell == RecurrentOptions::kGru)) {
    take(scratch.cell, samples * hidden);
  }
  take(scratch.gates, samples * options.gates());
  if (options.projection > 0) {
    take(scratch.unprojected, samples * hidden);
    take(scratch.projected, samples * width);
    if (backward) take(scratch.dprojected, rows * width);
  }
  if (backward) take(scratch.last, samples * width);
  if (backward && plan.previous) take(scratch.previous, rows * width);
  if (backward) take(scratch.zeros, columns);
  if (plan.drops) take(scratch.input, rows * columns);
  if (backward && (options.layers > 1 || plan.packs)) take(scratch.doutput, rows * columns);
  const auto take_packed = [&](std::byte*& array, const std::unique_ptr<Gemm>& gemm) {
    if (gemm && !plan.stores_packed) take(array, static_cast<int64_t>(gemm->packed_bytes()));
  };
  size_t input_bytes = 0;
  for (const RecurrentPlan::InputProducts* products : {&plan.first, &plan.other}) {
    const auto need = [&](const std::unique_ptr<Gemm>& gemm) {
      if (!gemm || plan.stores_packed) return;
      input_bytes = std::max(input_bytes, gemm->packed_bytes());
    };
    if (!backward) need(products->forward);
    if (backward) need(products->dinput), need(products->add_dinput);
  }
  take(scratch.input_weight, static_cast<int64_t>(input_bytes));
  take_packed(scratch.step_weight, backward ? plan.dstep : plan.step);
  take_packed(scratch.projection_weight, backward ? plan.dproject : plan.project);
  scratch.products = base == nullptr ? nullptr : base + bytes;
  return bytes + plan.product_scratch();
}

// Also declares the states, all but scratch, and the operations in `spec`.  Errors: InvalidArgument
// for inputs that a recurrent layer does not take, and the primitives'.
absl::StatusOr<RecurrentPlan> PlanRecurrent(const RecurrentOptions& options,
                                            const InferInput& input, LayerSpec& spec);

}  // namespace gyre
