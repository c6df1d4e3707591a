// cuda_probe.h: which GPUs this build's kernels run on.  nvcc alone compiles it, and knows.
#pragma once

#include <cuda_runtime_api.h>

namespace gyre {

// Returns 10 major + minor of the oldest GPU that the build has kernels for.
int OldestComputeCapability();

// Loads a kernel on the calling thread's GPU.  Errors: cudaErrorNoKernelImageForDevice,
// cudaErrorUnsupportedPtxVersion and others if the GPU cannot run the program's kernels.
cudaError_t LoadProbe();

}  // namespace gyre
