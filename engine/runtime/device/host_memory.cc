#include "engine/runtime/device/host_memory.h"

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

HostMemory::~HostMemory() { GYRE_CHECK(ranges_.empty()); }

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
  ranges_.emplace(static_cast<const std::byte*>(data), Range{bytes, kind});
  if (counted) in_use_bytes_ += bytes;
  return data;
}

void HostMemory::Free(MemoryKind kind, void* memory) {
  if (memory == nullptr) return;
  std::lock_guard lock(mutex_);
  const auto range = ranges_.find(static_cast<const std::byte*>(memory));
  GYRE_CHECK(range != ranges_.end() && range->second.kind == kind);
  if (kind == MemoryKind::kDevice) in_use_bytes_ -= range->second.bytes;
  ranges_.erase(range);
  ::operator delete(memory, kAlignment);
}

HostMemory::Ranges::const_iterator HostMemory::Meeting(const std::byte* begin,
                                                       const std::byte* end) const {
  // The last range that starts before `end` is the only one that can hold [begin, end), and if it
  // does not meet it, no range does.
  auto range = ranges_.lower_bound(end);
  if (range == ranges_.begin()) return ranges_.end();
  --range;
  const std::byte* const range_end = range->first + range->second.bytes;
  return std::less<const std::byte*>()(begin, range_end) ? range : ranges_.end();
}

absl::Status HostMemory::CheckRange(const void* data, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  const std::less<const std::byte*> before;
  const std::byte* const begin = static_cast<const std::byte*>(data);
  const std::byte* const end = begin + bytes;
  std::lock_guard lock(mutex_);
  const auto range = Meeting(begin, end);
  if (range == ranges_.end()) return absl::OkStatus();
  const std::byte* const range_end = range->first + range->second.bytes;
  if (!before(begin, range->first) && !before(range_end, end)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrFormat(
      "%s: [%p, %p) of %d bytes leaves the %s memory [%p, %p) of %d bytes", device_, begin, end,
      bytes, Name(range->second.kind), range->first, range_end, range->second.bytes));
}

bool HostMemory::IsDevice(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  std::lock_guard lock(mutex_);
  const auto range = Meeting(at, at + 1);
  return range != ranges_.end() && range->second.kind == MemoryKind::kDevice;
}

}  // namespace gyre
