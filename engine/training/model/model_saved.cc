// What of a model's plan a checkpoint has, who writes it, and the host memory that this takes.
// Values, as files have them, and the averages that the optimizer keeps of them (kAverageSlot) in
// their places.

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/math.h"
#include "engine/training/model/model.h"

namespace gyre {

std::vector<int> ShareOut(std::span<const size_t> bytes, int ranks, size_t rank_0_has) {
  std::vector<size_t> order(bytes.size()), has(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t item) { return bytes[item]; });
  has[0] = rank_0_has;
  std::vector<int> takers(bytes.size());
  for (const size_t item : order) {
    const auto least = std::ranges::min_element(has);
    *least += bytes[item];
    takers[item] = static_cast<int>(least - has.begin());
  }
  return takers;
}

bool ModelPlan::has_master(size_t parameter) const {
  const Parameter& p = parameters.all()[parameter];
  return train != nullptr && p.trained() && FileDType(p) != p.spec.dtype;
}

std::vector<ModelPlan::Slot> ModelPlan::saved_slots() const {
  const RunShape& shape = options.shape;
  const OptimizerSlots& kept = train->slots;
  size_t of_rank_0 = 0;
  for (const Parameter& parameter : parameters.all()) of_rank_0 += MasterBytes(parameter);
  std::vector<Slot> slots;
  std::vector<size_t> bytes;  // that any rank may write
  for (int b = 0; b < static_cast<int>(train->order.buckets.size()); ++b) {
    const int64_t elements = train->order.buckets[b].elements;
    const size_t whole = static_cast<size_t>(elements) * SizeOf(kept.dtype(b));
    for (int kind = 0; kind < kept.arrays(b); ++kind) {
      const bool master = kind == kept.kinds();
      const bool average = !master && kept.names[kind] == kAverageSlot;
      slots.push_back({.bucket = b, .kind = kind, .master = master, .bytes = whole, .writer = 0});
      bytes.push_back(master || average ? 0 : whole);
      if (average) of_rank_0 += whole;
    }
  }
  const std::vector<int> writers =
      ShareOut(bytes, shape.shard_optimizer ? shape.ranks : 1, of_rank_0);
  for (size_t s = 0; s < slots.size(); ++s) slots[s].writer = bytes[s] > 0 ? writers[s] : 0;
  std::ranges::stable_partition(slots, [](const Slot& slot) { return !slot.master; });
  return slots;
}

ModelPlan::CopyBytes ModelPlan::copy_bytes() const {
  const RunShape& shape = options.shape;
  CopyBytes copy;
  for (size_t i = 0; shape.rank == 0 && i < parameters.all().size(); ++i) {
    if (has_master(i)) continue;  // which is a slot
    copy.own += RoundUp(parameters.all()[i].spec.size_bytes(), kCopyAlignBytes);
  }
  for (const Net::Carried& carried : Net::CarriedBy(*train)) {
    copy.own += RoundUp(carried.rows.bytes(), kCopyAlignBytes);
  }
  for (const Slot& slot : saved_slots()) {
    const size_t bytes = RoundUp(slot.bytes, kCopyAlignBytes);
    if (slot.writer == shape.rank) copy.own += bytes;
    // There is a place for any of the others', again and again.
    if (slot.writer != shape.rank && shape.shard_optimizer) {
      copy.others = std::max(copy.others, bytes);
    }
  }
  return copy;
}

size_t ModelPlan::checkpoint_bytes() const {
  const CopyBytes copy = copy_bytes();
  size_t bytes = copy.own + copy.others;
  for (size_t i = 0; options.shape.rank == 0 && i < parameters.all().size(); ++i) {
    const Parameter& parameter = parameters.all()[i];
    bytes += UnpackedBytes(parameter);
    if (has_master(i)) continue;
    // Of 16 bits: as the F32 that files have.
    if (FileDType(parameter) != parameter.spec.dtype) bytes += MasterBytes(parameter);
  }
  for (const Slot& slot : saved_slots()) {
    if (slot.writer != options.shape.rank || slot.master) continue;
    const GradientBucket& bucket = train->order.buckets[slot.bucket];
    for (int g = bucket.first; g < bucket.last; ++g) {
      bytes += UnpackedBytes(parameters.all()[train->order.gradients[g].parameter]);
    }
  }
  return bytes;
}

absl::Status CheckLoad(const ModelPlan& plan, const TensorFile& weights,
                       const TensorFiles* optimizer, int64_t step) {
  for (const Parameter& parameter : plan.parameters.all()) {
    const std::string name = CanonicalName(parameter, "");
    const Tensor* const stored = weights.Find(name);
    if (stored == nullptr) RETURN_IF_ERROR(weights.CheckReadable(name));
    RETURN_IF_ERROR(CheckStored(parameter, "", stored));
    if (parameter.spec.slice && parameter.spec.slice->first_row > 0) continue;  // seen already
    const NamedTensor read = {name, *stored};
    RETURN_IF_ERROR(CheckFiniteTensors({&read, 1}));
  }
  if (optimizer == nullptr) return absl::OkStatus();
  for (const BucketedGradient& gradient : plan.train->order.gradients) {
    const Parameter& parameter = plan.parameters.all()[gradient.parameter];
    for (int kind = 0; kind < plan.train->slots.kinds(); ++kind) {
      const std::string suffix = absl::StrCat(".", plan.train->slots.names[kind]);
      const auto entry = optimizer->entries().find(CanonicalName(parameter, suffix));
      const bool there = entry != optimizer->entries().end();
      if (!there && step > 0 && parameter.spec.trainable_from == step) continue;  // it begins
      Tensor stored;
      if (there) stored = {nullptr, entry->second.shape, entry->second.dtype};
      RETURN_IF_ERROR(CheckStored(parameter, suffix, there ? &stored : nullptr));
    }
  }
  return absl::OkStatus();
}

absl::Status Model::EachValue(Stream& stream,
                              const std::function<void(const NamedTensor&)>& use) const {
  RETURN_IF_ERROR(BringHome(stream));
  const std::span<const Parameter> all = plan_.parameters.all();
  // By name in files; those of pieces, in order.
  std::multimap<std::string, size_t> parameter_of;
  for (size_t i = 0; i < all.size(); ++i) parameter_of.emplace(CanonicalName(all[i], ""), i);
  std::vector<std::byte> copy;  // of a value in device memory, or of a bucket's masters
  int bucket = -1;              // whose masters they are
  for (const auto& [name, index] : parameter_of) {
    HostTensors value;
    if (plan_.has_master(index)) {
      const GradientOrder& order = plan_.train->order;
      const BucketedGradient& gradient = GradientOf(order, static_cast<int>(index));
      if (std::exchange(bucket, gradient.bucket) != gradient.bucket) {
        copy.resize(static_cast<size_t>(order.buckets[bucket].elements) * sizeof(float));
        RETURN_IF_ERROR(CopySlot(stream, bucket, plan_.train->slots.kinds(), copy.data()));
        RETURN_IF_ERROR(stream.Synchronize());
      }
      const size_t at = static_cast<size_t>(gradient.at) * sizeof(float);
      RETURN_IF_ERROR(UnpackParameter(
          all[index], std::span(copy).subspan(at, MasterBytes(all[index])), "", value));
    } else {
      const Tensor from = any().parameter(static_cast<int>(index), plan_.parameters);
      std::span<std::byte> stored(static_cast<std::byte*>(from.data), from.bytes());
      if (device_.kind() != DeviceKind::kCpu) {
        bucket = -1;
        copy.resize(from.bytes());
        RETURN_IF_ERROR(stream.Copy(copy.data(), from.data, copy.size()));
        stored = copy;
      }
      RETURN_IF_ERROR(stream.Synchronize());
      RETURN_IF_ERROR(UnpackValue(all[index], stored, value));
    }
    use(value.tensors.front());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Model::Sha256OfWeights(Stream& stream) const {
  Sha256Digest digest;
  RETURN_IF_ERROR(EachValue(stream, [&](const NamedTensor& value) {
    digest.Add({static_cast<const char*>(value.tensor.data), value.tensor.bytes()});
  }));
  return digest.Hex();
}

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
