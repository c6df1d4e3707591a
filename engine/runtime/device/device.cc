#include "engine/runtime/device/device.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace gyre {

absl::StatusOr<DeviceKind> ParseDeviceKind(std::string_view name) {
  if (name == "cpu") return DeviceKind::kCpu;
  if (name == "sim") return DeviceKind::kSim;
  if (name == "cuda") return DeviceKind::kCuda;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown device \"", std::string(name), "\"; expected cpu, sim or cuda"));
}

}  // namespace gyre
