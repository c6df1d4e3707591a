#include "engine/runtime/device/host_call.h"

#include <utility>

#include "engine/runtime/device/cuda/cuda_device.h"

namespace gyre {

absl::Status CallOnHost(Stream& stream, std::function<absl::Status()> work) {
  return stream.kind() == DeviceKind::kCuda ? CallOnCudaHost(stream, std::move(work))
                                            : stream.Call(std::move(work));
}

}  // namespace gyre
