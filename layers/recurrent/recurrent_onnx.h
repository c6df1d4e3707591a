// recurrent_onnx.h: a recurrent layer as nodes of ONNX.
#pragma once

#include "layers/interface/onnx.h"
#include "layers/recurrent/recurrent_plan.h"

namespace gyre {

// The forms:
//   Scan            with resets, a projection, or carried rows with lengths, which the others lack
//   LSTM, GRU, RNN  without
// Precondition: `plan` is of `options`, and the writer is at this layer.
absl::Status RecurrentToOnnx(const RecurrentOptions& options, const RecurrentPlan& plan,
                             OnnxWriter& onnx);

}  // namespace gyre
