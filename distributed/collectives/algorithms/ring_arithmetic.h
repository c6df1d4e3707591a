// ring_arithmetic.h: where a ring adds what arrives and measures what is summed: on the host at
// once, or on a device, on a stream of its own, while the ring's other messages travel.
//
// Used by one thread, the ring's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "distributed/collectives/reduction.h"
#include "engine/runtime/device/device.h"

namespace gyre {

class RingArithmetic {
 public:
  // Messages that have been received, or may be at any moment, and are not yet added.
  static constexpr int kSlots = 4;
  enum class SlotWork : uint8_t { kAdd, kAddAndMeasure, kMeasure };

  virtual ~RingArithmetic() = default;
  // Of a full segment: what a ring cuts its chunks into.
  virtual size_t segment_bytes() const = 0;
  // Before the first work, and for more: makes room for kSlots messages of `slot_bytes`, a multiple
  // of 256, in place of the room there was.  Errors: those of allocation.
  virtual absl::Status Reserve(size_t slot_bytes) = 0;
  // Where a message is received.
  virtual std::byte* slot(int slot) = 0;

  // Begins the work of a slot: adds what was received there to `count` elements of a real dtype
  // at `data`; or measures them; or both.  Errors: those of the device.
  virtual absl::Status Start(int slot, SlotWork work, DType dtype, void* data, int64_t count) = 0;
  // True once that work is done; *measured has then gained what it measured.  Never blocks.
  virtual absl::StatusOr<bool> Finish(int slot, double* measured) = 0;
  // Blocks until all work has ended, also after an error.
  virtual void Drain() = 0;
};

std::unique_ptr<RingArithmetic> NewHostArithmetic();

// The device must outlive the result, which takes device memory when it is told to Reserve.
// Errors: those of the device.
absl::StatusOr<std::unique_ptr<RingArithmetic>> NewDeviceArithmetic(Device& device);
// That memory, with room for messages of `slot_bytes`.
size_t DeviceArithmeticBytes(size_t slot_bytes);
// Its segment_bytes().
extern const size_t kDeviceSegmentBytes;

}  // namespace gyre
