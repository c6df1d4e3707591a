// cuda_probe.h: what this build's kernels need of a GPU.  A file of its own, because nvcc alone
// knows, while g++ compiles the rest of the device.
#pragma once

#include <cuda_runtime_api.h>

namespace gyre {

// Of the oldest GPU that there are kernels for, as 10 major + minor.
int OldestComputeCapability();

// Loads a kernel on the calling thread's GPU.  Errors: cudaErrorNoKernelImageForDevice,
// cudaErrorUnsupportedPtxVersion and the like if the program's kernels cannot be.
cudaError_t LoadProbe();

}  // namespace gyre
