#include "engine/runtime/device/cuda/cuda_probe.h"

#include <cuda_runtime.h>

namespace gyre {
namespace {

// nvcc's list, oldest first, as 100 major + 10 minor.
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};

__global__ void Probe() {}

}  // namespace

int OldestComputeCapability() { return kArchitectures[0] / 10; }

cudaError_t LoadProbe() {
  cudaFuncAttributes ignored;
  return cudaFuncGetAttributes(&ignored, Probe);
}

}  // namespace gyre
