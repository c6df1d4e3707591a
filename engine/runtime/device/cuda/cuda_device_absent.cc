// cuda_device.h in a build without CUDA.

#include "engine/runtime/device/cuda/cuda_device.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(const CudaOptions&) {
  return absl::UnimplementedError(
      "this build has no CUDA (WITH_CUDA=0, or no CUDA toolkit where it was built); use "
      "--device=cpu, or build where nvcc is");
}

absl::StatusOr<std::unique_ptr<StopWatch>> NewCudaStopWatch(Stream&) {
  return absl::UnimplementedError("this build has no CUDA");
}

}  // namespace gyre
