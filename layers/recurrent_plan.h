// recurrent_plan.h: what a recurrent layer was asked for, whichever its cell, its states and its
// products.  Made once a shape, apart from the layer, which runs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/infer.h"
#include "layers/recurrent_cells.h"

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
  // Of one layer and direction: states.
  struct Direction {
    int weight_ih, weight_hh, bias_ih, bias_hh, weight_hr;
    int gates;         // [rows, gates]
    int cells;         // lstm: [T + 1, N, hidden], by steps, and then what was there before them
    int candidates;    // gru: [rows, hidden]
    int hidden, cell;  // carried; what follows them is the next batch's
  };
  struct Layer {
    std::vector<Direction> directions;
    int output;  // [rows, directions x width]
  };
  // From what a layer takes in, and back.
  struct InputProducts {
    std::unique_ptr<Gemm> forward, dweight, dinput, add_dinput;
  };

  DType compute = DType::kF32;
  SequenceRows rows{};
  int64_t inputs = 0;            // columns of x
  int lengths = -1, reset = -1;  // states; -1: none
  int output = 0, last = -1;     // states
  int scratch = 0, backward_scratch = -1;
  std::vector<Layer> layers;
  bool backward = false;  // there is any
  bool drops = false;     // between layers
  // Whether backward wants h' of every row.
  bool previous = false;
  InputProducts first, other;  // of the first layer, and the others
  // h' W_hh^T and, backward, of the gradients of gates: W_hh, and with h', weights'.
  std::unique_ptr<Gemm> step, dstep, dweight_hh;
  std::unique_ptr<Gemm> project, dproject, dweight_hr;

  int64_t row_count() const { return rows.times * rows.samples; }
  const InputProducts& products(size_t layer) const { return layer == 0 ? first : other; }
  // Bytes of scratch that a product wants.
  size_t product_scratch() const;
};

// Also writes the states, all but scratch, and the operations into `spec`.  Errors: InvalidArgument
// where the inputs are none of a recurrent layer's; the primitives'.
absl::StatusOr<RecurrentPlan> PlanRecurrent(const RecurrentOptions& options,
                                            const InferInput& input, LayerSpec& spec);

}  // namespace gyre
