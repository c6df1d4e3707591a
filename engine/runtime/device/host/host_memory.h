// host_memory.h: the memory of the cpu and sim devices.  Host memory is counted against a capacity,
// and each allocation is remembered.  Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "engine/runtime/device/device.h"

namespace gyre {

class HostMemory {
 public:
  // capacity_bytes bounds device memory, not pinned host memory.  `fill` is written over each new
  // allocation.  Error messages start with the device's name.
  HostMemory(DeviceKind device, size_t capacity_bytes, std::optional<unsigned char> fill);
  // Precondition: everything has been freed.  A buffer must not outlive its device.
  ~HostMemory();

  // As Device::Allocate and Device::Free.  Free ignores null.
  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes);
  void Free(MemoryKind kind, void* memory);

  // Errors: OutOfRange if [data, data + bytes) is partly, but not wholly, within one allocation.
  absl::Status CheckRange(const void* data, size_t bytes) const;

  bool IsDevice(const void* data) const;

  size_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct HostAllocation {
    size_t bytes;
    MemoryKind kind;
  };
  using Allocations = std::map<const std::byte*, HostAllocation>;

  // Returns the last allocation that meets [begin, end), not empty, or end().  Under mutex_.
  Allocations::const_iterator Meeting(const std::byte* begin, const std::byte* end) const;

  const std::string_view device_;
  const size_t capacity_bytes_;
  const std::optional<unsigned char> fill_;
  mutable std::mutex mutex_;
  Allocations allocations_;
  size_t in_use_bytes_ = 0;  // of device memory
};

}  // namespace gyre
