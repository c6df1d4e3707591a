#include "engine/runtime/device/host/host_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <new>

#include "absl/strings/str_format.h"

namespace gyre {
namespace {

constexpr std::align_val_t kAlignment{4096};  // promised by Device::Allocate
// The least that holds a huge page wherever it begins.
constexpr size_t kLeastForHugePages = size_t{4} << 20;

std::string_view Name(MemoryKind kind) {
  return kind == MemoryKind::kDevice ? "device" : "pinned host";
}

}  // namespace

HostMemory::HostMemory(DeviceKind device, size_t capacity_bytes, std::optional<unsigned char> fill)
    : device_(DeviceKindName(device)), capacity_bytes_(capacity_bytes), fill_(fill) {}

HostMemory::~HostMemory() { GYRE_CHECK(allocations_.empty()); }

absl::StatusOr<void*> HostMemory::Allocate(MemoryKind kind, size_t bytes) {
  if (bytes == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const bool counted = kind == MemoryKind::kDevice;
  if (counted && bytes > capacity_bytes_ - in_use_bytes_) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: out of device memory: %d bytes asked for, %d in use, capacity %d bytes", device_,
        bytes, in_use_bytes_, capacity_bytes_));
  }
  void* data = ::operator new(bytes, kAlignment, std::nothrow);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: the system has no %d bytes of %s memory", device_, bytes, Name(kind)));
  }
  // A pass over an array of megabytes meets a page every few hundred elements otherwise, at which
  // processors stop to fetch ahead.  A system without huge pages refuses, and nothing is lost.
  if (bytes >= kLeastForHugePages) madvise(data, bytes, MADV_HUGEPAGE);
  if (fill_) std::memset(data, *fill_, bytes);
  allocations_.emplace(static_cast<const std::byte*>(data), HostAllocation{bytes, kind});
  if (counted) in_use_bytes_ += bytes;
  return data;
}

void HostMemory::Free(MemoryKind kind, void* memory) {
  if (memory == nullptr) return;
  std::lock_guard lock(mutex_);
  const auto allocation = allocations_.find(static_cast<const std::byte*>(memory));
  GYRE_CHECK(allocation != allocations_.end() && allocation->second.kind == kind);
  if (kind == MemoryKind::kDevice) in_use_bytes_ -= allocation->second.bytes;
  allocations_.erase(allocation);
  ::operator delete(memory, kAlignment);
}

HostMemory::Allocations::const_iterator HostMemory::Meeting(const std::byte* begin,
                                                            const std::byte* end) const {
  // The last allocation that starts before `end` is the only one that can hold [begin, end), and if
  // it does not meet it, none does.
  auto allocation = allocations_.lower_bound(end);
  if (allocation == allocations_.begin()) return allocations_.end();
  --allocation;
  const std::byte* const allocation_end = allocation->first + allocation->second.bytes;
  return std::less<const std::byte*>()(begin, allocation_end) ? allocation : allocations_.end();
}

absl::Status HostMemory::CheckRange(const void* data, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  const std::less<const std::byte*> before;
  const std::byte* const begin = static_cast<const std::byte*>(data);
  const std::byte* const end = begin + bytes;
  std::lock_guard lock(mutex_);
  const auto allocation = Meeting(begin, end);
  if (allocation == allocations_.end()) return absl::OkStatus();
  const std::byte* const allocation_end = allocation->first + allocation->second.bytes;
  if (!before(begin, allocation->first) && !before(allocation_end, end)) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrFormat("%s: [%p, %p) of %d bytes leaves the %s memory [%p, %p) of %d bytes", device_,
                      begin, end, bytes, Name(allocation->second.kind), allocation->first,
                      allocation_end, allocation->second.bytes));
}

bool HostMemory::IsDevice(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  std::lock_guard lock(mutex_);
  const auto allocation = Meeting(at, at + 1);
  return allocation != allocations_.end() && allocation->second.kind == MemoryKind::kDevice;
}

}  // namespace gyre
