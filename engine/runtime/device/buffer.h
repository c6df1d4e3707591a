// buffer.h: owns bytes on a device, which must outlive the buffer.
#pragma once

#include "engine/runtime/device/device.h"

namespace gyre {

class Buffer {
 public:
  Buffer() = default;
  // bytes == 0 gives an empty buffer.  Errors: those of Device::Allocate.
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
