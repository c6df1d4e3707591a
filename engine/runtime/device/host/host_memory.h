// host_memory.h: the memory of the cpu and sim devices: host memory that is counted against a
// capacity and remembered range by range.  Thread-safe.
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
  // Device memory is bounded by capacity_bytes, pinned host memory is not.  `fill` is written over
  // each new range.  The device's name starts error messages.
  HostMemory(DeviceKind device, size_t capacity_bytes, std::optional<unsigned char> fill);
  // Everything has been freed: a buffer that outlives its device is a bug.
  ~HostMemory();

  // As Device::Allocate and Device::Free; bytes == 0 gives null, which Free ignores.
  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes);
  void Free(MemoryKind kind, void* memory);

  // OutOfRange if [data, data + bytes) lies partly but not wholly within one allocated range.
  absl::Status CheckRange(const void* data, size_t bytes) const;

  // Whether it lies in device memory.
  bool IsDevice(const void* data) const;

  size_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct HostAllocation {
    size_t bytes;
    MemoryKind kind;
  };
  using Allocations = std::map<const std::byte*, HostAllocation>;

  // The last allocation that [begin, end), which is not empty, meets; allocations_.end() if none.
  // Under mutex_.
  Allocations::const_iterator Meeting(const std::byte* begin, const std::byte* end) const;

  const std::string_view device_;
  const size_t capacity_bytes_;
  const std::optional<unsigned char> fill_;
  mutable std::mutex mutex_;
  Allocations allocations_;
  size_t in_use_bytes_ = 0;  // of device memory
};

}  // namespace gyre
