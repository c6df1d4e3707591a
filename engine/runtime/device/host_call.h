// host_call.h: host code on a stream of any kind: a GPU's, too, runs what touches host memory
// alone.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/runtime/device/device.h"

namespace gyre {

// Enqueues host code that touches host memory alone, pinned or not, and calls nothing of a device.
// Otherwise as Stream::Call; of a GPU its errors come out of what is called once they are known,
// and it is not for captured work.
absl::Status CallOnHost(Stream& stream, std::function<absl::Status()> work);

}  // namespace gyre
