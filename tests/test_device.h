// test_device.h: the device that tests of any device run on: `sim`, or what the environment says:
// GYRE_TEST_DEVICE=cuda, where there is a GPU to be tested.  So a CPU runs the text of the tests
// that a GPU has to pass.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/device/device.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

// The one that the environment names, if any.  Ends the program for an unknown name.
std::optional<DeviceKind> NamedDevice();

// The one that the environment names, or else the host's two; and a name for GoogleTest.
std::vector<DeviceKind> DevicesToTest();
inline std::string DeviceName(const testing::TestParamInfo<DeviceKind>& info) {
  return std::string(DeviceKindName(info.param));
}

// cpu and sim: a new one.  cuda: the program's only one, since libraries take long to open; if that
// fails the program ends with the reason.
struct TestDevice {
  std::shared_ptr<Device> device;
  std::shared_ptr<const Primitives> primitives;  // of the device
};
TestDevice OpenTestDevice(DeviceKind kind, int threads = 1);

}  // namespace gyre
