#include "engine/training/parameter.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/random.h"

namespace gyre {

std::string CanonicalName(const Parameter& parameter, absl::string_view suffix) {
  const std::optional<ParameterSlice>& slice = parameter.spec.slice;
  if (slice && suffix.empty()) return absl::StrCat(parameter.layer, ".", slice->of);
  return absl::StrCat(parameter.name(), suffix);
}

Shape CanonicalShape(const Parameter& parameter, absl::string_view suffix) {
  const StateSpec& spec = parameter.spec;
  return spec.slice && suffix.empty() ? spec.canonical.With(0, spec.slice->all_rows)
                                      : spec.canonical;
}

namespace {

bool StoredCanonically(const Parameter& parameter) { return parameter.spec.layout.empty(); }

// A tensor as files show it, at `data`.
Tensor CanonicalTensor(const Parameter& parameter, void* data) {
  return {data, parameter.spec.canonical, FileDType(parameter)};
}

Tensor StorageTensor(const Parameter& parameter, std::span<std::byte> storage) {
  return {storage.data(), Shape({parameter.storage_elements()}), FileDType(parameter)};
}

// Byte number `byte` of each element, as a number.
void TakeByte(const Tensor& from, size_t byte, const Tensor& to) {
  const auto* bytes = static_cast<const uint8_t*>(from.data);
  VisitReal(to.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < to.elements(); ++i) {
      const auto value = static_cast<float>(bytes[static_cast<size_t>(i) * sizeof(float) + byte]);
      to.as<T>()[i] = static_cast<T>(value);
    }
  });
}

void SetByte(const Tensor& from, size_t byte, const Tensor& to) {
  auto* bytes = static_cast<uint8_t*>(to.data);
  VisitReal(from.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < from.elements(); ++i) {
      bytes[static_cast<size_t>(i) * sizeof(float) + byte] =
          static_cast<uint8_t>(static_cast<float>(from.as<T>()[i]));
    }
  });
}

// Canonical <-> opaque storage, of FileDType, by the owner's Pack or Unpack.  A layer moves
// elements of the parameter's own type: of one of 16 bits the bytes of an F32, one after another,
// each a number that 16 bits hold.
absl::Status Move(const Parameter& parameter, decltype(&Layer::Pack) move, const Tensor& from,
                  const Tensor& to) {
  const Layer& owner = *parameter.owner;
  const DType dtype = parameter.spec.dtype;
  if (FileDType(parameter) == dtype) return (owner.*move)(parameter.state, from, to);
  HostTensors narrow;
  const Tensor narrow_from = narrow.Add("", from.shape, dtype);
  const Tensor narrow_to = narrow.Add("", to.shape, dtype);
  for (size_t byte = 0; byte < sizeof(float); ++byte) {
    TakeByte(from, byte, narrow_from);
    RETURN_IF_ERROR((owner.*move)(parameter.state, narrow_from, narrow_to));
    SetByte(narrow_to, byte, to);
  }
  return absl::OkStatus();
}

}  // namespace

Tensor HostTensors::Add(std::string name, Shape shape, DType dtype) {
  Tensor tensor{nullptr, shape, dtype};
  // One byte at least, so that an empty tensor still counts as bound.
  tensor.data = memory.emplace_back(std::max<size_t>(tensor.bytes(), 1)).data();
  tensors.push_back({std::move(name), tensor});
  return tensor;
}

void ParameterSet::Add(Parameter parameter) {
  const int index = static_cast<int>(parameters_.size());
  GYRE_CHECK(index_of_name_.emplace(parameter.name(), index).second);
  parameters_.push_back(std::move(parameter));
}

int ParameterSet::Find(absl::string_view name) const {
  const auto found = index_of_name_.find(std::string(name));
  return found == index_of_name_.end() ? -1 : found->second;
}

std::vector<std::byte> ToType(std::span<const std::byte> bytes, DType from, DType to) {
  const size_t elements = bytes.size() / SizeOf(from);
  std::vector<std::byte> result(elements * SizeOf(to));
  VisitReal(from, [&]<typename From>() {
    VisitReal(to, [&]<typename To>() {
      const auto* in = reinterpret_cast<const From*>(bytes.data());
      auto* out = reinterpret_cast<To*>(result.data());
      for (size_t i = 0; i < elements; ++i) {
        out[i] = static_cast<To>(static_cast<AccumulateType<To>>(in[i]));
      }
    });
  });
  return result;
}

size_t MasterBytes(const Parameter& parameter) {
  return static_cast<size_t>(parameter.storage_elements()) * SizeOf(FileDType(parameter));
}

absl::Status SetInitialValue(const Parameter& parameter, uint64_t seed, void* storage) {
  const StateSpec& spec = parameter.spec;
  const Shape& shape = spec.canonical;
  const int64_t before = spec.slice ? spec.slice->first_row * shape.elements(1, shape.rank()) : 0;
  HostTensors memory;
  const Tensor canonical = StoredCanonically(parameter)
                               ? CanonicalTensor(parameter, storage)
                               : memory.Add("", shape, FileDType(parameter));
  GYRE_CHECK(!StoredCanonically(parameter) || canonical.bytes() == MasterBytes(parameter));
  Initialize(spec.initializer, RandomKey(seed, CanonicalName(parameter, "")), canonical, before);
  if (StoredCanonically(parameter)) return absl::OkStatus();
  const std::span<std::byte> opaque(static_cast<std::byte*>(storage), MasterBytes(parameter));
  return Move(parameter, &Layer::Pack, canonical, StorageTensor(parameter, opaque));
}

absl::Status UnpackParameter(const Parameter& parameter, std::span<std::byte> storage,
                             absl::string_view suffix, HostTensors& to) {
  const std::string name = CanonicalName(parameter, suffix);
  if (StoredCanonically(parameter)) {
    to.tensors.push_back({name, CanonicalTensor(parameter, storage.data())});
    return absl::OkStatus();
  }
  const Tensor canonical = to.Add(name, parameter.spec.canonical, FileDType(parameter));
  return Move(parameter, &Layer::Unpack, StorageTensor(parameter, storage), canonical);
}

absl::Status UnpackValue(const Parameter& parameter, std::span<std::byte> storage,
                         HostTensors& to) {
  if (FileDType(parameter) == parameter.spec.dtype) {
    return UnpackParameter(parameter, storage, "", to);
  }
  std::vector<std::byte>& wide =
      to.memory.emplace_back(ToType(storage, parameter.spec.dtype, FileDType(parameter)));
  return UnpackParameter(parameter, std::span(wide), "", to);
}

void JoinSlices(HostTensors& tensors) {
  std::vector<NamedTensor> joined;
  const std::vector<NamedTensor>& all = tensors.tensors;
  for (size_t first = 0, last = 0; first < all.size(); first = last) {
    NamedTensor whole = all[first];
    bool end_to_end = true;
    for (last = first + 1; last < all.size() && all[last].name == whole.name; ++last) {
      const Tensor& next = all[last].tensor;
      end_to_end &= static_cast<std::byte*>(whole.tensor.data) + whole.tensor.bytes() == next.data;
      whole.tensor.shape = whole.tensor.shape.With(0, whole.tensor.shape[0] + next.shape[0]);
    }
    if (!end_to_end) {
      std::vector<std::byte>& copy = tensors.memory.emplace_back(whole.tensor.bytes());
      std::byte* to = copy.data();
      for (size_t i = first; i < last; ++i) {
        const Tensor& piece = all[i].tensor;
        to = std::copy_n(static_cast<const std::byte*>(piece.data), piece.bytes(), to);
      }
      whole.tensor.data = copy.data();
    }
    joined.push_back(std::move(whole));
  }
  tensors.tensors = std::move(joined);
}

size_t UnpackedBytes(const Parameter& parameter) {
  return StoredCanonically(parameter) ? 0 : CanonicalTensor(parameter, nullptr).bytes();
}

absl::Status CheckStored(const Parameter& parameter, absl::string_view suffix,
                         const Tensor* stored) {
  const std::string name = CanonicalName(parameter, suffix);
  if (stored == nullptr) {
    return absl::NotFoundError(
        absl::StrFormat("it holds no tensor \"%s\", so it belongs to another %s", name,
                        suffix.empty() ? "net" : "net or optimizer"));
  }
  const Shape expected = CanonicalShape(parameter, suffix);
  if (stored->shape == expected && stored->dtype == FileDType(parameter)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "its tensor \"%s\" is %s %s, the net expects %s %s, so it belongs to another net or "
      "precision",
      name, std::string(DTypeName(stored->dtype)), stored->shape.ToString(),
      DTypeName(FileDType(parameter)), expected.ToString()));
}

absl::StatusOr<std::vector<std::byte>> PackParameter(const Parameter& parameter,
                                                     const TensorFile& from,
                                                     absl::string_view suffix) {
  const std::string name = CanonicalName(parameter, suffix);
  const Tensor* stored = from.Find(name);
  if (stored == nullptr) RETURN_IF_ERROR(from.CheckReadable(name));
  RETURN_IF_ERROR(CheckStored(parameter, suffix, stored));
  Tensor canonical = CanonicalTensor(parameter, stored->data);
  if (parameter.spec.slice && suffix.empty()) {
    const auto row = static_cast<int64_t>(canonical.bytes()) / canonical.shape[0];
    canonical.data = static_cast<std::byte*>(stored->data) + parameter.spec.slice->first_row * row;
  }
  std::vector<std::byte> storage(MasterBytes(parameter));
  if (StoredCanonically(parameter)) {
    std::memcpy(storage.data(), canonical.data, storage.size());
    return storage;
  }
  RETURN_IF_ERROR(Move(parameter, &Layer::Pack, canonical, StorageTensor(parameter, storage)));
  return storage;
}

}  // namespace gyre
