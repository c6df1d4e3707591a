// attention_onnx.h: attention as nodes of ONNX.
#pragma once

#include "layers/attention/attention_plan.h"
#include "layers/interface/onnx.h"

namespace gyre {

// Scales the queries before the product, because OpenCV 4.6 drops a factor behind it.  Keys that a
// row does not see have -1e9 added to their scores.
void AttentionToOnnx(const AttentionPlan& plan, OnnxWriter& onnx);

}  // namespace gyre
