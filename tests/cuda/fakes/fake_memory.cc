#include "tests/cuda/fakes/fake_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine/runtime/check.h"

namespace gyre::fake_cudart {
namespace {

// Virtual: pages that nobody touches cost nothing.
constexpr size_t kRegionBytes = size_t{1} << 40;
constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;
// All bits set is a NaN in every floating-point format.  Only so much of an allocation is filled:
// the rest would only cost time.
constexpr int kFreshByte = 0xFF;
constexpr size_t kFilledBytes = size_t{64} << 20;

int CreateFile() {
  const int file = memfd_create("fake_cudart", MFD_CLOEXEC);
  GYRE_CHECK(file >= 0 && ftruncate(file, kRegionBytes) == 0);
  return file;
}

std::byte* Map(int file, int protection) {
  void* const data = mmap(nullptr, kRegionBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  GYRE_CHECK(data != MAP_FAILED);
  return static_cast<std::byte*>(data);
}

}  // namespace

FakeMemory::FakeMemory(bool host_access)
    : host_access_(host_access),
      file_(CreateFile()),
      program_(Map(file_, PROT_NONE)),
      view_(Map(file_, PROT_READ | PROT_WRITE)) {}

void* FakeMemory::Allocate(size_t bytes, int gpu) {
  // A page stays free behind each allocation, so that nothing lies where another one's end may be
  // overrun to.
  const size_t pages = (kAlignment + bytes + kPage - 1) / kPage + 1;
  GYRE_CHECK(pages < (kRegionBytes - next_) / kPage);
  const size_t offset = next_ + kAlignment;
  if (host_access_) {
    GYRE_CHECK(mprotect(program_ + next_, (pages - 1) * kPage, PROT_READ | PROT_WRITE) == 0);
  }
  std::memset(view_ + offset, kFreshByte, std::min(bytes, kFilledBytes));
  next_ += pages * kPage;
  ranges_[offset] = {bytes, gpu};
  return program_ + offset;
}

int FakeMemory::GpuOf(const void* data) const {
  if (!InRegion(data)) return -1;
  const auto range =
      ranges_.find(static_cast<size_t>(static_cast<const std::byte*>(data) - program_));
  return range == ranges_.end() ? -1 : range->second.gpu;
}

void FakeMemory::Free(void* data) {
  const auto range = ranges_.find(static_cast<size_t>(static_cast<std::byte*>(data) - program_));
  GYRE_CHECK(range != ranges_.end());
  const size_t begin = range->first - kAlignment;
  const size_t length = (kAlignment + range->second.bytes + kPage - 1) / kPage * kPage;
  if (host_access_) GYRE_CHECK(mprotect(program_ + begin, length, PROT_NONE) == 0);
  GYRE_CHECK(fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                       static_cast<off_t>(length)) == 0);
  ranges_.erase(range);
}

bool FakeMemory::InRegion(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto begin = reinterpret_cast<uintptr_t>(program_);
  return address >= begin && address < begin + kRegionBytes;
}

bool FakeMemory::Contains(const void* data, size_t bytes) const {
  if (!InRegion(data) || bytes == 0) return false;
  const size_t offset = static_cast<size_t>(static_cast<const std::byte*>(data) - program_);
  auto range = ranges_.upper_bound(offset);
  if (range == ranges_.begin()) return false;
  --range;
  const size_t within = offset - range->first;
  return within <= range->second.bytes && bytes <= range->second.bytes - within;
}

size_t FakeMemory::in_use_bytes(int gpu) const {
  size_t bytes = 0;
  for (const auto& [offset, range] : ranges_) {
    if (range.gpu == gpu) bytes += range.bytes;
  }
  return bytes;
}

std::byte* FakeMemory::View(const void* data) const {
  GYRE_CHECK(InRegion(data));
  return view_ + (static_cast<const std::byte*>(data) - program_);
}

}  // namespace gyre::fake_cudart
