// buffer.h: owning, move-only bytes on a device.  The device must outlive the buffer.
#pragma once

#include "engine/runtime/device/device.h"

namespace gyre {

class Buffer {
 public:
  Buffer() = default;
  // Errors: those of Device::Allocate.  bytes == 0 gives an empty buffer.
  static absl::StatusOr<Buffer> Allocate(Device& device, MemoryKind kind, size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  MemoryKind kind_ = MemoryKind::kDevice;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace gyre
