#include "engine/runtime/device/device.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

constexpr std::string_view kNames[] = {"cpu", "sim", "cuda"};  // by DeviceKind

}  // namespace

std::string_view DeviceKindName(DeviceKind kind) { return kNames[static_cast<size_t>(kind)]; }

absl::StatusOr<DeviceKind> ParseDeviceKind(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != std::end(kNames)) return static_cast<DeviceKind>(found - kNames);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown device \"", std::string(name), "\"; expected cpu, sim or cuda"));
}

}  // namespace gyre
