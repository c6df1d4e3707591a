// kernel_cases.h: layers that between them launch every kernel that layers have; tests/cuda checks
// that, and smoke_test runs each on a device.
#pragma once

#include <vector>

#include "engine/runtime/tensor.h"

namespace gyre {

struct KernelCase {
  const char* type;    // member of LayerConfig.type
  const char* config;  // LayerConfig as text
  std::vector<Shape> inputs;
  bool has_labels = false;  // as its last input, but for weights
  bool is_large = false;    // too much for libraries that compute on a CPU
  int batch_axis = 0;
  bool has_weights = false;  // behind the labels; inputs but for the first are then positive
};

const std::vector<KernelCase>& KernelCases();

}  // namespace gyre
