// try_device.h: whether a device still works.  An error in a kernel takes a GPU's whole context:
// each call of the process fails from then on, whoever makes it.
#pragma once

#include "engine/runtime/device/device.h"

namespace gyre {

// Copies a few bytes there and back on a new stream.  Errors: those of the device; DataLoss if
// other bytes come back.
absl::Status TryDevice(Device& device);

}  // namespace gyre
