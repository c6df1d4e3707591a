// host_call.h: host code on a stream of any kind, if it touches host memory alone.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/runtime/device/device.h"

namespace gyre {

// Enqueues host code that touches host memory alone, pinned or not, and calls no device.  Otherwise
// as Stream::Call.  On a GPU, later calls return its errors, and a capture refuses it.
absl::Status CallOnHost(Stream& stream, std::function<absl::Status()> work);

}  // namespace gyre
