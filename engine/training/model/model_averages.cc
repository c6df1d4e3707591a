// The averages that the optimizer keeps of the trained parameters (kAverageSlot), in their places.

#include <algorithm>

#include "engine/training/model/model.h"

namespace gyre {

int Model::average_kind() const {
  if (!plan_.train) return -1;
  const std::vector<std::string>& names = plan_.train->slots.names;
  const auto found = std::ranges::find(names, kAverageSlot);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

absl::Status Model::BeginAverages(Stream& stream) {
  RETURN_IF_ERROR(BringHome(stream));
  ReleaseHomes();
  for (int b = 0; b < buckets(); ++b) RETURN_IF_ERROR(ValuesToAverages(stream, b));
  return absl::OkStatus();
}

absl::Status Model::ValuesToAverages(Stream& stream, int bucket) {
  const ElementRange own = UpdatedShard(*plan_.train, bucket);
  for (const auto& [p, begin, at, count] : RangesIn(plan_.train->order, bucket, own)) {
    const Tensor from = Slice(train().parameter(p, plan_.parameters), begin, count);
    std::vector<std::byte> bytes(from.bytes());
    RETURN_IF_ERROR(stream.Copy(bytes.data(), from.data, bytes.size()));
    RETURN_IF_ERROR(stream.Synchronize());
    const DType dtype = plan_.train->slots.dtype(bucket);
    if (dtype != from.dtype) bytes = ToType(bytes, from.dtype, dtype);
    RETURN_IF_ERROR(SetSlot(stream, bucket, average_kind(), at - own.begin, bytes));
  }
  return absl::OkStatus();
}

absl::Status Model::PutAverages(Stream& stream) { return PutInPlace(stream, average_kind()); }
absl::Status Model::PutValuesBack(Stream& stream) {
  return PutInPlace(stream, plan_.train->slots.kinds());
}

// Without masters, values wait in the slots for their return.  Of a bucket in others' shards they
// come back from these, so no rank copies more than a bucket at a time.
absl::Status Model::PutInPlace(Stream& stream, int kind_beside_masters) {
  const OptimizerSlots& slots = plan_.train->slots;
  const GradientOrder& order = plan_.train->order;
  RETURN_IF_ERROR(BringHome(stream));
  ReleaseHomes();
  std::vector<std::byte> whole;
  for (int b = 0; b < buckets(); ++b) {
    const size_t element = SizeOf(slots.dtype(b));
    whole.resize(static_cast<size_t>(order.buckets[b].elements) * element);
    const bool has_master = slots.has_master(b);
    RETURN_IF_ERROR(
        CopySlot(stream, b, has_master ? kind_beside_masters : average_kind(), whole.data()));
    RETURN_IF_ERROR(stream.Synchronize());
    if (!has_master) RETURN_IF_ERROR(ValuesToAverages(stream, b));
    const ElementRange own = UpdatedShard(*plan_.train, b);
    const ElementRange set = one_copy() ? own : ElementRange{0, order.buckets[b].elements};
    for (const auto& [p, begin, at, count] : RangesIn(order, b, set)) {
      const Tensor to = Slice(train().parameter(p, plan_.parameters), begin, count);
      const std::span<const std::byte> bytes = std::span(whole).subspan(
          static_cast<size_t>(at) * element, static_cast<size_t>(count) * element);
      RETURN_IF_ERROR(
          Upload(stream, has_master ? ToType(bytes, slots.dtype(b), to.dtype) : bytes, to));
    }
  }
  // An owner's slots are its own again before a worker that goes on sends it gradients.
  return plan_.options.shape.shard_optimizer ? communication_->Barrier() : absl::OkStatus();
}

}  // namespace gyre
