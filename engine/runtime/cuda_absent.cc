// cuda.h in a build without CUDA.

#include "engine/runtime/check.h"
#include "engine/runtime/cuda.h"

namespace gyre {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError(
      "this build has no CUDA (WITH_CUDA=0, or no CUDA toolkit where it was built); use "
      "--device=cpu, or build where nvcc is");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(const CudaOptions&) { return Absent(); }

std::string DescribeCudaDevice(const Device& device) {
  GYRE_CHECK(device.kind() == DeviceKind::kCuda);
  return "";
}

absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device&, const CudaLibraryOptions&) {
  return Absent();
}

}  // namespace gyre
