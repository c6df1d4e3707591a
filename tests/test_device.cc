#include "tests/test_device.h"

#include <cstdio>
#include <cstdlib>

#include "engine/runtime/device/cuda/cuda_device.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"

namespace gyre {
namespace {

template <typename T>
T GetOrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "GYRE_TEST_DEVICE: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

TestDevice OpenGpu() {
  TestDevice gpu;
  gpu.device = GetOrDie(NewCudaDevice({}));
  gpu.primitives = GetOrDie(NewCudaPrimitives(*gpu.device, {}));
  return gpu;
}

}  // namespace

std::optional<DeviceKind> NamedDevice() {
  const char* const name = std::getenv("GYRE_TEST_DEVICE");
  if (name == nullptr) return std::nullopt;
  return GetOrDie(ParseDeviceKind(name));
}

std::vector<DeviceKind> DevicesToTest() {
  if (const auto named = NamedDevice()) return {*named};
  return {DeviceKind::kCpu, DeviceKind::kSim};
}

TestDevice OpenTestDevice(DeviceKind kind, int threads) {
  if (kind == DeviceKind::kCuda) {
    static const TestDevice& gpu = *new TestDevice(OpenGpu());
    return gpu;
  }
  TestDevice host;
  host.device = kind == DeviceKind::kCpu ? NewCpuDevice({.threads = threads})
                                         : NewSimDevice({.threads = threads});
  host.primitives = std::make_shared<Primitives>(kind, threads);
  return host;
}

}  // namespace gyre
