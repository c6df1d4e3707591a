#include "engine/training/model.h"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/math.h"
#include "engine/training/carried_rows.h"
#include "engine/training/net/net_kernels.h"

namespace gyre {
namespace {

// One rank at a time where ranks are threads: under a sanitizer, whose own allocator the program
// uses, this is the first call of glibc's, and two of them would both set it up.
void GiveBackFreeMemory() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  malloc_trim(0);
}

// Of what is copied for a checkpoint: a cache line, and so every element.
constexpr size_t kCopyAlignBytes = 64;

// Whether no exponent is all ones.  In integers, and without an end at the first: vectors do it.
template <typename T>
bool AllFinite(std::span<const T> values) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  const auto ones =
      std::bit_cast<Bits>(static_cast<T>(std::numeric_limits<AccumulateType<T>>::infinity()));
  const T* const value = values.data();
  Bits found = 0;
#pragma omp simd reduction(| : found)
  for (size_t i = 0; i < values.size(); ++i) {
    found |= (std::bit_cast<Bits>(value[i]) & ones) == ones ? ones : Bits{0};
  }
  return found == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(ModelPlan plan, Device& device, Stream& stream,
                                                     ProcessGroup* communication) {
  std::unique_ptr<Model> model(new Model(std::move(plan), device, communication));
  const ModelPlan& p = model->plan_;
  ASSIGN_OR_RETURN(model->device_arena_,
                   Buffer::Allocate(device, MemoryKind::kDevice, p.device_bytes()));
  std::byte* gradients = nullptr;
  if (communication != nullptr && device.kind() == DeviceKind::kCpu && p.train) {
    ASSIGN_OR_RETURN(gradients, communication->Share(p.communication_bytes()));
  }
  if (gradients == nullptr) {
    ASSIGN_OR_RETURN(model->communication_arena_,
                     Buffer::Allocate(device, MemoryKind::kDevice, p.communication_bytes()));
    gradients = model->communication_arena_.data();
  }
  const auto elements = static_cast<int64_t>(p.communication_bytes() / sizeof(float));
  RETURN_IF_ERROR(Fill(stream, 0, {gradients, Shape({elements}), DType::kF32}));
  if (p.train) {
    model->train_ = std::make_unique<Net>(*p.train, model->device_arena_.data(), gradients);
  }
  for (const auto& test : p.test) {
    model->test_.push_back(std::make_unique<Net>(*test, model->device_arena_.data(), nullptr));
  }
  return model;
}

absl::Status Model::Upload(Stream& stream, std::span<const std::byte> bytes, Tensor to) {
  GYRE_CHECK(bytes.size() == to.bytes());
  RETURN_IF_ERROR(stream.Copy(to.data, bytes.data(), bytes.size()));
  return stream.Synchronize();
}

bool Model::has_master(size_t index) const {
  const Parameter& parameter = plan_.parameters.all()[index];
  return train_ != nullptr && parameter.trained() && FileDType(parameter) != parameter.spec.dtype;
}

absl::Status Model::SetParameter(Stream& stream, size_t index, std::span<const std::byte> bytes) {
  const Parameter& parameter = plan_.parameters.all()[index];
  const Tensor to = any().parameter(static_cast<int>(index), plan_.parameters);
  if (FileDType(parameter) == to.dtype) return Upload(stream, bytes, to);
  const std::vector<std::byte> rounded = ToType(bytes, FileDType(parameter), to.dtype);
  RETURN_IF_ERROR(Upload(stream, rounded, to));
  if (!has_master(index)) return absl::OkStatus();
  const GradientOrder& order = plan_.train->order;
  const auto gradient =
      std::ranges::find(order.gradients, static_cast<int>(index), &BucketedGradient::parameter);
  const ElementRange own = UpdatedPart(*plan_.train, gradient->bucket);
  const int64_t begin = std::max(own.begin, gradient->at);
  const int64_t end = std::min(own.end, gradient->at + parameter.storage_elements());
  if (begin >= end) return absl::OkStatus();
  return Upload(stream,
                bytes.subspan(static_cast<size_t>(begin - gradient->at) * sizeof(float),
                              static_cast<size_t>(end - begin) * sizeof(float)),
                Slice(train_->master(gradient->bucket), begin - own.begin, end - begin));
}

absl::Status Model::Initialize(Stream& stream) {
  const std::span<const Parameter> all = plan_.parameters.all();
  const uint64_t seed = plan_.options.shape.seed;
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor to = any().parameter(i, plan_.parameters);
    if (stream.kind() == DeviceKind::kCuda || FileDType(all[i]) != to.dtype) {
      std::vector<std::byte> value(MasterBytes(all[i]));
      RETURN_IF_ERROR(SetInitialValue(all[i], seed, value.data()));
      RETURN_IF_ERROR(SetParameter(stream, i, value));
    } else {
      RETURN_IF_ERROR(stream.Call(
          [&parameter = all[i], seed, to] { return SetInitialValue(parameter, seed, to.data); }));
    }
  }
  RETURN_IF_ERROR(ClearSlotsAndCarried(stream));
  RETURN_IF_ERROR(stream.Synchronize());
  GiveBackFreeMemory();  // or what packing took of it stays with the process
  return absl::OkStatus();
}

absl::Status Model::ClearSlotsAndCarried(Stream& stream) {
  for (int b = 0; train_ && b < buckets(); ++b) {
    for (int kind = 0; kind < plan_.train->slots.kinds; ++kind) {
      RETURN_IF_ERROR(Fill(stream, 0, train_->slot(b, kind)));
    }
  }
  return train_ ? train_->ClearCarried(stream) : absl::OkStatus();
}

absl::Status CheckFinite(std::span<const NamedTensor> tensors) {
  for (const auto& [name, tensor] : tensors) {
    const bool finite = VisitReal(tensor.dtype, [&]<typename T>() {
      return AllFinite<T>(std::span(tensor.as<T>(), static_cast<size_t>(tensor.elements())));
    });
    if (!finite) {
      return absl::InternalError(absl::StrCat("\"", name, "\" holds a value that is not finite"));
    }
  }
  return absl::OkStatus();
}

std::string Model::Unknown(const TensorFile& weights) const {
  std::set<std::string> known;
  for (const Parameter& p : plan_.parameters.all()) {
    for (const CanonicalPart& part : p.spec.parts) known.insert(CanonicalName(p, part, ""));
  }
  std::vector<std::string> unknown;
  for (const NamedTensor& named : weights.tensors()) {
    if (!known.contains(named.name)) unknown.push_back(absl::StrCat("\"", named.name, "\""));
  }
  if (unknown.empty()) return "";
  return absl::StrCat("the net has no parameter for ", absl::StrJoin(unknown, ", "));
}

absl::Status Model::LoadParameter(Stream& stream, size_t index, const TensorFile& weights) {
  const Parameter& parameter = plan_.parameters.all()[index];
  ASSIGN_OR_RETURN(const std::vector<std::byte> value, PackParameter(parameter, weights, ""));
  for (const CanonicalPart& part : parameter.spec.parts) {
    const std::string name = CanonicalName(parameter, part, "");
    const NamedTensor read = {name, *weights.Find(name)};
    RETURN_IF_ERROR(CheckFinite({&read, 1}));
  }
  return SetParameter(stream, index, value);
}

absl::Status Model::LoadSome(Stream& stream, const TensorFile& weights) {
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool found = std::ranges::any_of(all[i].spec.parts, [&](const CanonicalPart& part) {
      return weights.Find(CanonicalName(all[i], part, "")) != nullptr;
    });
    if (found) RETURN_IF_ERROR(LoadParameter(stream, i, weights));
  }
  return absl::OkStatus();
}

absl::Status Model::Load(Stream& stream, const TensorFile& weights, const TensorFiles* optimizer) {
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) RETURN_IF_ERROR(LoadParameter(stream, i, weights));
  RETURN_IF_ERROR(ClearSlotsAndCarried(stream));  // with the padding
  for (int b = 0; optimizer != nullptr && b < buckets(); ++b) {
    RETURN_IF_ERROR(LoadSlots(stream, b, *optimizer));
  }
  return absl::OkStatus();
}

absl::Status Model::LoadCarried(Stream& stream, const TensorFiles& carried) {
  for (const Net::Carried& rows : train_->carried()) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadRows(carried, rows));
    RETURN_IF_ERROR(Upload(stream, bytes, rows.rows));
  }
  return absl::OkStatus();
}

absl::Status Model::LoadSlots(Stream& stream, int bucket, const TensorFiles& optimizer) {
  const ElementRange own = UpdatedPart(*plan_.train, bucket);
  for (const auto& piece : PiecesIn(plan_.train->order, plan_.parameters, bucket, own)) {
    const Parameter& parameter = plan_.parameters.all()[piece.parameter];
    const size_t element = SizeOf(FileDType(parameter));
    for (int kind = 0; kind < plan_.train->slots.kinds; ++kind) {
      const std::string suffix = absl::StrCat(".", plan_.options.slots[kind]);
      std::vector<std::string> names;
      for (const CanonicalPart& part : parameter.spec.parts) {
        names.push_back(CanonicalName(parameter, part, suffix));
      }
      ASSIGN_OR_RETURN(const TensorFile read, optimizer.Read(names));
      ASSIGN_OR_RETURN(const std::vector<std::byte> value, PackParameter(parameter, read, suffix));
      RETURN_IF_ERROR(Upload(stream,
                             std::span(value).subspan(piece.begin * element, piece.count * element),
                             Slice(train_->slot(bucket, kind), piece.at - own.begin, piece.count)));
    }
  }
  return absl::OkStatus();
}

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

std::vector<Model::Slot> Model::Slots() const {
  const RunShape& shape = plan_.options.shape;
  const OptimizerSlots& kept = plan_.train->slots;
  size_t of_values = 0;
  for (const Parameter& parameter : plan_.parameters.all()) of_values += MasterBytes(parameter);
  std::vector<Slot> slots;
  std::vector<size_t> bytes;
  for (int b = 0; b < buckets(); ++b) {
    const size_t element = SizeOf(kept.dtype(b));
    const size_t whole = static_cast<size_t>(plan_.train->order.elements[b]) * element;
    for (int kind = 0; kind < kept.kinds; ++kind) {
      slots.push_back({.bucket = b, .kind = kind, .master = false, .bytes = whole, .writer = 0});
      bytes.push_back(whole);
    }
  }
  const std::vector<int> writers =
      ShareOut(bytes, shape.shard_optimizer ? shape.ranks : 1, of_values);
  for (size_t s = 0; s < slots.size(); ++s) slots[s].writer = writers[s];
  for (int b = 0; b < buckets(); ++b) {
    if (!kept.has_master(b)) continue;
    const size_t whole = static_cast<size_t>(plan_.train->order.elements[b]) * sizeof(float);
    slots.push_back({.bucket = b, .kind = kept.kinds, .master = true, .bytes = whole, .writer = 0});
  }
  return slots;
}

absl::Status Model::CopyState(Stream& stream, Buffer& copy) const {
  const std::span<const Parameter> all = plan_.parameters.all();
  const int rank = plan_.options.shape.rank;
  const bool sharded = plan_.options.shape.shard_optimizer;
  const std::vector<Slot> slots = Slots();
  size_t of_values = 0, of_slots = 0, of_others = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (has_master(i)) continue;  // which is a slot
    of_values += RoundUp(all[i].spec.size_bytes(), kCopyAlignBytes);
  }
  for (const Slot& slot : slots) {
    const size_t bytes = RoundUp(slot.bytes, kCopyAlignBytes);
    if (slot.writer == rank) of_slots += bytes;
    // There is a place for any of the others', again and again.
    if (slot.writer != rank && sharded) of_others = std::max(of_others, bytes);
  }
  size_t of_rows = 0;
  for (const Net::Carried& carried : train_->carried()) {
    of_rows += RoundUp(carried.rows.bytes(), kCopyAlignBytes);
  }
  const size_t bytes = (rank == 0 ? of_values : 0) + of_rows + of_slots + of_others;
  if (copy.bytes() != bytes) {
    copy = Buffer();  // first, for there may not be room for both
    ASSIGN_OR_RETURN(copy, Buffer::Allocate(device_, MemoryKind::kPinnedHost, bytes));
  }
  std::byte* to = copy.data();
  for (size_t i = 0; rank == 0 && i < all.size(); ++i) {
    if (has_master(i)) continue;
    const Tensor from = any().parameter(i, plan_.parameters);
    RETURN_IF_ERROR(stream.Copy(to, from.data, from.bytes()));
    to += RoundUp(from.bytes(), kCopyAlignBytes);
  }
  for (const Net::Carried& carried : train_->carried()) {
    RETURN_IF_ERROR(stream.Copy(to, carried.rows.data, carried.rows.bytes()));
    to += RoundUp(carried.rows.bytes(), kCopyAlignBytes);
  }
  std::byte* const others = to + of_slots;
  for (const Slot& slot : slots) {
    const bool own = slot.writer == rank;
    if (!own && !sharded) continue;
    RETURN_IF_ERROR(CopySlot(stream, slot.bucket, slot.kind, own ? to : others));
    if (own) to += RoundUp(slot.bytes, kCopyAlignBytes);
  }
  return stream.Synchronize();
}

absl::Status Model::CopySlot(Stream& stream, int bucket, int kind, std::byte* to) const {
  const ElementRange own = UpdatedPart(*plan_.train, bucket);
  const Tensor from = train_->slot(bucket, kind);
  const Tensor whole{to, Shape({plan_.train->order.elements[bucket]}), from.dtype};
  const Tensor part = Slice(whole, own.begin, own.count());
  RETURN_IF_ERROR(stream.Copy(part.data, from.data, part.bytes()));
  if (!plan_.options.shape.shard_optimizer) return absl::OkStatus();
  RETURN_IF_ERROR(stream.Synchronize());
  const std::string what = absl::StrCat(
      "parts of ", kind < plan_.train->slots.kinds ? plan_.options.slots[kind] : "the masters",
      " of bucket ", bucket, ", ", whole.elements());
  return communication_
      ->Wait(communication_->Submit(what, Operation::kAllgather, /*root=*/0, whole,
                                    /*ready=*/nullptr))
      .status();
}

absl::Status Model::UnpackState(std::span<std::byte> copy, State& state) const {
  const auto take = [&copy](size_t bytes) {
    const std::span<std::byte> taken = copy.first(bytes);
    copy = copy.subspan(RoundUp(bytes, kCopyAlignBytes));
    return taken;
  };
  const std::span<const Parameter> all = plan_.parameters.all();
  const int rank = plan_.options.shape.rank;
  for (size_t i = 0; rank == 0 && i < all.size(); ++i) {
    if (has_master(i)) continue;
    RETURN_IF_ERROR(UnpackValue(all[i], take(all[i].spec.size_bytes()), state.weights));
  }
  for (const Net::Carried& carried : train_->carried()) {
    Tensor rows = carried.rows;
    rows.data = take(rows.bytes()).data();
    state.carried.tensors.push_back({NameInFile(carried), rows});
  }
  for (const Slot& slot : Slots()) {
    if (slot.writer != rank) continue;
    const std::string suffix = slot.master ? "" : absl::StrCat(".", plan_.options.slots[slot.kind]);
    RETURN_IF_ERROR(UnpackSlot(slot.bucket, take(slot.bytes), suffix,
                               slot.master ? state.weights : state.optimizer));
  }
  return absl::OkStatus();
}

absl::Status Model::UnpackSlot(int bucket, std::span<std::byte> whole, absl::string_view suffix,
                               HostTensors& to) const {
  const GradientOrder& order = plan_.train->order;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    const Parameter& parameter = plan_.parameters.all()[order.gradients[g].parameter];
    const size_t at = static_cast<size_t>(order.gradients[g].at) * SizeOf(FileDType(parameter));
    RETURN_IF_ERROR(
        UnpackParameter(parameter, whole.subspan(at, MasterBytes(parameter)), suffix, to));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Model::Sha256OfWeights(Stream& stream) const {
  HostTensors weights;
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (has_master(i)) continue;
    const Tensor from = any().parameter(i, plan_.parameters);
    std::vector<std::byte>& storage = weights.memory.emplace_back(from.bytes());
    RETURN_IF_ERROR(stream.Copy(storage.data(), from.data, from.bytes()));
    RETURN_IF_ERROR(stream.Synchronize());
    RETURN_IF_ERROR(UnpackValue(all[i], std::span(storage), weights));
  }
  for (int b = 0; train_ && b < buckets(); ++b) {
    if (!plan_.train->slots.has_master(b)) continue;
    std::vector<std::byte>& masters = weights.memory.emplace_back(
        static_cast<size_t>(plan_.train->order.elements[b]) * sizeof(float));
    RETURN_IF_ERROR(CopySlot(stream, b, plan_.train->slots.kinds, masters.data()));
    RETURN_IF_ERROR(stream.Synchronize());
    RETURN_IF_ERROR(UnpackSlot(b, std::span(masters), "", weights));
  }
  return WeightsSha256(weights.tensors);
}

}  // namespace gyre
