// onnx_case.h: nets with random weights as ONNX models, and what they must say of random inputs.
#pragma once

#include <string>
#include <vector>

#include "engine/training/onnx/verify.h"

namespace gyre {

// Those of a CPU, by one thread.
const Primitives& CpuPrimitives();

struct OnnxCase {
  HostTensors weights;  // which `source` points into
  OnnxSource source;
  onnx::ModelProto model;
};

// A net cut as an export cuts it, with weights that depend on the seed alone.  Weights are normal
// with a variance of 1 / inputs.
absl::StatusOr<std::unique_ptr<OnnxCase>> MakeOnnxCase(Parsed<NetConfig> net,
                                                       const DataConfig& data,
                                                       const OnnxOptions& options, uint64_t seed);

// The model of a run's newest checkpoint, or of a file that was exported from one.
absl::StatusOr<std::unique_ptr<OnnxCase>> CaseOfRun(const std::string& path,
                                                    const OnnxOptions& options);

// Writes FOLDER/NAME.onnx, and FOLDER/NAME.npz with the arrays "BATCH/STEP/in/NAME" and
// "BATCH/STEP/out/NAME", for each batch and two steps, of which the second carries on the first.
absl::Status WriteOnnxCase(OnnxCase& of, const std::vector<int64_t>& batches,
                           const std::string& folder, const std::string& name);

}  // namespace gyre
