// verify.h: whether OpenCV's module dnn says of an ONNX model's inputs what Gyre's own net says.
#pragma once

#include <string>
#include <vector>

#include "engine/training/onnx/own_forward.h"

namespace gyre {

// An ONNX model is right if no output differs by more than this share of the largest one.
inline constexpr double kOnnxTolerance = 1e-5;

// Why OpenCV 4.6 does not read the model, for people, or "".  It then takes onnxruntime.
std::string BeyondOpenCv(const onnx::ModelProto& model);

// The largest difference by the largest output, for random inputs of `samples` samples.
// Precondition: BeyondOpenCv is "".  Errors: Unavailable without OpenCV's module dnn, Internal with
// its words if it refuses the model or gives another shape, and those of OwnForward.
absl::StatusOr<double> DifferenceByOpenCv(const onnx::ModelProto& model, const OnnxSource& source,
                                          int64_t samples, const Primitives& primitives);

}  // namespace gyre
