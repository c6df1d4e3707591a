// fake_memory.h: addresses for the fake CUDA runtime.  One region is mapped twice: where a program
// sees it, which for device memory faults on any access, and where the fake reads and writes it.
// Addresses are never used again, so that what was freed is known.  Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace gyre::fake_cudart {

class FakeMemory {
 public:
  // host_access: the program may touch what is allocated, as it may pinned memory.
  explicit FakeMemory(bool host_access);

  // Aligned to 256 bytes and to no more, as CUDA promises.  Aborts when the region is used up.
  void* Allocate(size_t bytes, int gpu);
  // The gpu it was allocated for, or -1: nothing begins there.
  int GpuOf(const void* data) const;
  // Precondition: something begins there.
  void Free(void* data);

  // The region holds this address, whether or not it is allocated.
  bool InRegion(const void* data) const;
  // [data, data + bytes) lies in one allocation, and bytes > 0.
  bool Contains(const void* data, size_t bytes) const;
  size_t in_use_bytes(int gpu) const;
  int allocations() const { return static_cast<int>(ranges_.size()); }
  // Precondition: InRegion(data).
  std::byte* View(const void* data) const;

 private:
  struct Range {
    size_t bytes;
    int gpu;
  };

  const bool host_access_;
  const int file_;
  std::byte* const program_;
  std::byte* const view_;
  size_t next_ = 0;  // offset of the first page that was never allocated
  std::map<size_t, Range> ranges_;
};

}  // namespace gyre::fake_cudart
