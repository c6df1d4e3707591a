// ring_arithmetic.h: where a ring adds received values and measures sums.  The host does so at
// once, a device on a stream of its own while other messages travel.  Used by the ring's thread.
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
  // Messages that are received, or may be at any time, and are not yet added.
  static constexpr int kSlots = 4;
  enum class SlotWork : uint8_t { kAdd, kAddAndMeasure, kMeasure };

  virtual ~RingArithmetic() = default;
  // Size of a full segment of a chunk.
  virtual size_t segment_bytes() const = 0;
  // Makes room for kSlots messages of `slot_bytes`, a multiple of 256, in place of the former room.
  // Called before the first work, and for more room.  Errors: those of allocation.
  virtual absl::Status Reserve(size_t slot_bytes) = 0;
  // Memory in which a message is received.
  virtual std::byte* slot(int slot) = 0;

  // Begins to add the slot to `count` elements of a real type at `data`, to measure these, or both.
  // Errors: those of the device.
  virtual absl::Status Start(int slot, SlotWork work, DType dtype, void* data, int64_t count) = 0;
  // Returns true once that work is done, and adds its measure to *measured.  Never blocks.
  virtual absl::StatusOr<bool> Finish(int slot, double* measured) = 0;
  // Blocks until all work has ended, also after an error.
  virtual void Drain() = 0;
};

std::unique_ptr<RingArithmetic> NewHostArithmetic();

// The device outlives the result, which allocates device memory in Reserve.  Errors: those of the
// device.
absl::StatusOr<std::unique_ptr<RingArithmetic>> NewDeviceArithmetic(Device& device);
// Device memory for messages of `slot_bytes`.
size_t DeviceArithmeticBytes(size_t slot_bytes);
// Its segment_bytes().
extern const size_t kDeviceSegmentBytes;

}  // namespace gyre
