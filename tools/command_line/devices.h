// devices.h: opens the device that flags choose.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"
#include "distributed/transport/launcher.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

struct DeviceFlags {
  std::string kind = "cpu";  // "cpu", "sim" or "cuda"
  std::string memory = {};   // "", or bytes with an optional K, M, G suffix (powers of 1024)
  int threads = 0;           // 0: cores / ranks on this host
  bool tf32 = false;         // as in CudaLibraryOptions
  bool autotune = false;     // on a GPU: measure what is prepared, with CudaTuner
  ProcessGroup* communication = nullptr;  // of several ranks that tune alike
  // The caller among the ranks that are threads of this process.  They share its cores, and take
  // GPUs in this order.
  RankAndSize in_process = {};
};
struct DeviceChoice {
  std::unique_ptr<Device> device;
  std::unique_ptr<CudaSelector> tuner;  // of the primitives, or null
  // For TrainingOptions::tune.
  std::function<absl::Status(const std::function<absl::Status()>& prepare)> tune = nullptr;
  std::unique_ptr<Primitives> primitives;  // of the device
  int threads = 1;
};
absl::StatusOr<DeviceChoice> OpenDevice(const DeviceFlags& flags);

}  // namespace gyre
