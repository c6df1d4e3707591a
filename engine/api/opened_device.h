// opened_device.h: the device that a program chooses.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

struct DeviceWish {
  const char* kind = nullptr;  // null: "cpu"
  size_t memory_bytes = 0;     // of cuda and sim.  0: what is free, or the default of SimOptions
  int threads = 0;             // 0: this process's share of the cores
  bool tf32 = false;           // as in CudaLibraryOptions
};

struct OpenedDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<Primitives> primitives;  // of the device
  int threads = 1;
};
// Ranks of a launcher take the host's GPUs in turn.
// Errors: InvalidArgument for a wish that nothing can meet, and those of NewCudaDevice.
absl::StatusOr<OpenedDevice> OpenWished(const DeviceWish& wish);

}  // namespace gyre
