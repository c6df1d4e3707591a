#include "engine/runtime/device/buffer.h"

#include <utility>

namespace gyre {

absl::StatusOr<Buffer> Buffer::Allocate(Device& device, MemoryKind kind, size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  ASSIGN_OR_RETURN(buffer.data_, device.Allocate(kind, bytes));
  buffer.device_ = &device;
  buffer.kind_ = kind;
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      kind_(other.kind_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  // The old memory goes with `moved`, whichever way round, also in a self-move.
  Buffer moved(std::move(other));
  std::swap(device_, moved.device_);
  std::swap(kind_, moved.kind_);
  std::swap(data_, moved.data_);
  std::swap(bytes_, moved.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) device_->Free(kind_, data_);
}

}  // namespace gyre
