// fault.h: reports bad data (a label, an index or a length out of range, a weight below 0) from a
// kernel.  The kernel marks one word in device memory.  The trainer reads it with the loss and
// makes a Status that names layer and sample.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/runtime/host_device.h"

namespace gyre {

// One word packs layer (the high bits) and sample index (kIndexBits).  The smallest wins by one
// atomic minimum, so the report does not depend on timing.
struct Fault {
  static constexpr uint64_t kNone = ~uint64_t{0};
  static constexpr int kIndexBits = 44;
  static constexpr int kMostLayers = 1 << (64 - kIndexBits);
  uint64_t word = kNone;

  int layer() const { return static_cast<int>(word >> kIndexBits); }
  int64_t index() const { return static_cast<int64_t>(word & ((uint64_t{1} << kIndexBits) - 1)); }
};

// Reports that sample `index` of the local batch exceeds StateSpec::largest, or is below 0 or not
// finite against StateSpec::not_negative.  Any thread.
HOST_DEVICE inline void RaiseFault(Fault* fault, int layer, int64_t index) {
  const uint64_t word =
      static_cast<uint64_t>(layer) << Fault::kIndexBits | static_cast<uint64_t>(index);
#if defined(__CUDA_ARCH__)
  atomicMin(reinterpret_cast<unsigned long long*>(&fault->word), word);
#else
  std::atomic_ref<uint64_t> current(fault->word);
  uint64_t seen = current.load(std::memory_order_relaxed);
  while (word < seen && !current.compare_exchange_weak(seen, word, std::memory_order_relaxed)) {
  }
#endif
}

}  // namespace gyre
