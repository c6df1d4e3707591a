#include "distributed/collectives/algorithms/ring_arithmetic.h"

#include <array>

#include "distributed/collectives/device_reduction.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {

// Large enough that starting a kernel or two and polling an event (10 us) hides under its transfer
// (20 us at 12.5 GB/s, 100 Gbit/s); small enough to be pipelined, and that an urgent sum does not
// wait long for what has been posted of others.  Above it, Open MPI's TCP halves its speed.
const size_t kDeviceSegmentBytes = 256 << 10;

namespace {

// Large enough that a message's latency (1 us within a host, 10 us over TCP) is little beside its
// transfer (13 us at 10 GB/s, 1 ms at 1 Gbit/s); small enough that a window of four stays in a
// core's L2 cache (1 to 2 MB) between arrival and addition, and that a chunk of the usual bucket
// has several in flight.  Above 256 KB, Open MPI's TCP halves its speed.
constexpr size_t kHostSegmentBytes = 128 << 10;

class HostArithmetic final : public RingArithmetic {
 public:
  size_t segment_bytes() const override { return kHostSegmentBytes; }

  // There is room for full segments from the start; what is not used costs nothing.
  absl::Status Reserve(size_t) override { return absl::OkStatus(); }

  std::byte* slot(int slot) override { return slots_.get() + slot * kHostSegmentBytes; }

  absl::Status Start(int slot, SlotWork work, DType dtype, void* data, int64_t count) override {
    measured_[slot] = 0;
    if (work == SlotWork::kAdd) AddTo(dtype, data, this->slot(slot), count);
    if (work == SlotWork::kMeasure) measured_[slot] = Measure(dtype, data, count);
    if (work == SlotWork::kAddAndMeasure) {
      measured_[slot] = AddToAndMeasure(dtype, data, this->slot(slot), count);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Finish(int slot, double* measured) override {
    *measured += measured_[slot];
    return true;
  }

  void Drain() override {}

 private:
  const std::unique_ptr<std::byte[]> slots_ =
      std::make_unique_for_overwrite<std::byte[]>(kSlots * kHostSegmentBytes);
  std::array<double, kSlots> measured_{};
};

class DeviceArithmetic final : public RingArithmetic {
 public:
  explicit DeviceArithmetic(Device& device) : device_(device) {}
  ~DeviceArithmetic() override { Drain(); }

  absl::Status Open() {
    ASSIGN_OR_RETURN(stream_, device_.NewStream());
    ASSIGN_OR_RETURN(measured_,
                     Buffer::Allocate(device_, MemoryKind::kPinnedHost, kSlots * sizeof(double)));
    for (auto& event : finished_) {
      ASSIGN_OR_RETURN(event, device_.NewEvent());
    }
    return absl::OkStatus();
  }

  size_t segment_bytes() const override { return kDeviceSegmentBytes; }

  absl::Status Reserve(size_t slot_bytes) override {
    slots_ = {};
    ASSIGN_OR_RETURN(slots_, Buffer::Allocate(device_, MemoryKind::kDevice, kSlots * slot_bytes));
    slot_bytes_ = slot_bytes;
    if (measures_.bytes() > 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(
        measures_, Buffer::Allocate(device_, MemoryKind::kDevice, kSlots * sizeof(DeviceMeasure)));
    return absl::OkStatus();
  }

  std::byte* slot(int slot) override { return slots_.data() + slot * slot_bytes_; }

  absl::Status Start(int slot, SlotWork work, DType dtype, void* data, int64_t count) override {
    if (work != SlotWork::kMeasure) {
      RETURN_IF_ERROR(EnqueueAdd(*stream_, dtype, data, this->slot(slot), count));
    }
    measures_slot_[slot] = work != SlotWork::kAdd;
    if (measures_slot_[slot]) {
      DeviceMeasure* const measure = reinterpret_cast<DeviceMeasure*>(measures_.data()) + slot;
      RETURN_IF_ERROR(EnqueueMeasure(*stream_, dtype, data, count, measure));
      RETURN_IF_ERROR(stream_->Copy(Measured(slot), &measure->total, sizeof(double)));
    }
    return stream_->Record(*finished_[slot]);
  }

  absl::StatusOr<bool> Finish(int slot, double* measured) override {
    ASSIGN_OR_RETURN(const bool done, finished_[slot]->Done());
    if (done && measures_slot_[slot]) *measured += *Measured(slot);
    return done;
  }

  void Drain() override {
    if (stream_ != nullptr) (void)stream_->Synchronize();  // its error has been returned
  }

 private:
  double* Measured(int slot) { return reinterpret_cast<double*>(measured_.data()) + slot; }

  Device& device_;
  Buffer slots_, measures_;  // device memory
  Buffer measured_;          // pinned
  size_t slot_bytes_ = 0;
  std::array<bool, kSlots> measures_slot_{};
  std::array<std::unique_ptr<Event>, kSlots> finished_;
  std::unique_ptr<Stream> stream_;  // last: it works in the memory above
};

}  // namespace

std::unique_ptr<RingArithmetic> NewHostArithmetic() { return std::make_unique<HostArithmetic>(); }

absl::StatusOr<std::unique_ptr<RingArithmetic>> NewDeviceArithmetic(Device& device) {
  auto arithmetic = std::make_unique<DeviceArithmetic>(device);
  RETURN_IF_ERROR(arithmetic->Open());
  return arithmetic;
}

size_t DeviceArithmeticBytes(size_t slot_bytes) {
  return RingArithmetic::kSlots * (sizeof(DeviceMeasure) + slot_bytes);
}

}  // namespace gyre
