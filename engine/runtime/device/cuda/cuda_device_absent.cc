// cuda_device.h in a build without CUDA.

#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_device.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(const CudaOptions&) {
  return absl::UnimplementedError(
      "this build has no CUDA (WITH_CUDA=0, or no CUDA toolkit where it was built); use "
      "--device=cpu, or build where nvcc is");
}

size_t CudaGraphNodes(const Graph&) { return 0; }

absl::StatusOr<std::unique_ptr<StopWatch>> NewCudaStopWatch(Stream&) {
  return absl::UnimplementedError("this build has no CUDA");
}

absl::Status CallOnCudaHost(Stream&, std::function<absl::Status()>) {
  return absl::UnimplementedError("this build has no CUDA");
}

std::string DescribeCudaDevice(const Device& device) {
  GYRE_CHECK(device.kind() == DeviceKind::kCuda);
  return "";
}

}  // namespace gyre
