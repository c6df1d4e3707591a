#include "tests/any_device/try_device.h"

#include <cstdint>

#include "engine/runtime/device/buffer.h"

namespace gyre {

absl::Status TryDevice(Device& device) {
  ASSIGN_OR_RETURN(const auto stream, device.NewStream());
  ASSIGN_OR_RETURN(const Buffer there,
                   Buffer::Allocate(device, MemoryKind::kDevice, sizeof(uint64_t)));
  const uint64_t sent = 0x0123456789abcdef;
  uint64_t back = 0;
  RETURN_IF_ERROR(stream->Copy(there.data(), &sent, sizeof(sent)));
  RETURN_IF_ERROR(stream->Copy(&back, there.data(), sizeof(back)));
  RETURN_IF_ERROR(stream->Synchronize());
  return back == sent ? absl::OkStatus() : absl::DataLossError("other bytes came back");
}

}  // namespace gyre
