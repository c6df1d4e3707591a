// slot.h: device memory of a test, that notices what is written beyond its end, and its contents as
// doubles.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/runtime/device/buffer.h"

namespace gyre {

using Doubles = std::vector<double>;

// `bytes` holds elements of a real type or I32.
Doubles ToDoubles(const void* bytes, const Shape& shape, DType dtype);
std::vector<std::byte> ToBytes(const Doubles& values, DType dtype);

// The nearest numbers that `dtype` can hold.
Doubles RoundedTo(DType dtype, const Doubles& values);

// Device memory with a guard behind it, and a copy of it on the host.  New memory is poisoned: NaN
// as any real type, -1 as an integer.  Methods wait for the stream.
class Slot {
 public:
  absl::Status Allocate(Device& device, Stream& stream, size_t bytes);
  absl::Status Poison();
  absl::Status Upload();    // host() -> device()
  absl::Status Download();  // device() -> host().  Errors: Internal if the guard was written.
  absl::Status Write(const std::vector<std::byte>& bytes, size_t offset = 0);
  absl::StatusOr<std::vector<std::byte>> Read();

  std::byte* host() { return host_.data(); }
  void* device() const { return device_.data(); }

 private:
  Stream* stream_ = nullptr;
  size_t bytes_ = 0;
  Buffer device_, host_;
};

}  // namespace gyre
