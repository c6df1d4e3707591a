#include "engine/training/parameter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/atomic_file.h"
#include "engine/runtime/random.h"

namespace gyre {

std::string CanonicalName(const Parameter& parameter, const CanonicalPart& part,
                          absl::string_view suffix) {
  return absl::StrCat(parameter.name(), part.name.empty() ? "" : ".", part.name, suffix);
}

namespace {

bool StoredCanonically(const Parameter& parameter) {
  return parameter.spec.layout.empty() && parameter.spec.parts.size() == 1;
}

Tensor StorageTensor(const Parameter& parameter, std::span<std::byte> storage) {
  return {storage.data(), Shape({parameter.storage_elements()}), parameter.spec.dtype};
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

absl::Status SetInitialValue(const Parameter& parameter, uint64_t seed, void* storage) {
  const StateSpec& spec = parameter.spec;
  const auto set = [&](const CanonicalPart& part, Tensor to) {
    Initialize(spec.initializer, RandomKey(seed, CanonicalName(parameter, part, "")), to);
  };
  if (StoredCanonically(parameter)) {
    const Tensor whole{storage, spec.parts[0].shape, spec.dtype};
    GYRE_CHECK(whole.bytes() == spec.size_bytes());
    set(spec.parts[0], whole);
    return absl::OkStatus();
  }
  HostTensors tensors;
  std::vector<Tensor> parts;
  for (const CanonicalPart& part : spec.parts) {
    parts.push_back(tensors.Add(part.name, part.shape, spec.dtype));
    set(part, parts.back());
  }
  const std::span<std::byte> opaque(static_cast<std::byte*>(storage), spec.size_bytes());
  return parameter.owner->Pack(parameter.state, parts, StorageTensor(parameter, opaque));
}

absl::Status UnpackParameter(const Parameter& parameter, std::span<std::byte> storage,
                             absl::string_view suffix, HostTensors& to) {
  if (StoredCanonically(parameter)) {
    const CanonicalPart& whole = parameter.spec.parts[0];
    to.tensors.push_back({CanonicalName(parameter, whole, suffix),
                          {storage.data(), whole.shape, parameter.spec.dtype}});
    return absl::OkStatus();
  }
  std::vector<Tensor> parts;
  for (const CanonicalPart& part : parameter.spec.parts) {
    parts.push_back(
        to.Add(CanonicalName(parameter, part, suffix), part.shape, parameter.spec.dtype));
  }
  return parameter.owner->Unpack(parameter.state, StorageTensor(parameter, storage), parts);
}

absl::StatusOr<std::vector<std::byte>> PackParameter(const Parameter& parameter,
                                                     const TensorFile& from,
                                                     absl::string_view suffix) {
  std::vector<Tensor> parts;
  for (const CanonicalPart& part : parameter.spec.parts) {
    const std::string name = CanonicalName(parameter, part, suffix);
    const Tensor* tensor = from.Find(name);
    if (tensor == nullptr) {
      return absl::NotFoundError(
          absl::StrFormat("it holds no tensor \"%s\", so it belongs to another %s", name,
                          suffix.empty() ? "net" : "net or optimizer"));
    }
    if (tensor->shape != part.shape || tensor->dtype != parameter.spec.dtype) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "its tensor \"%s\" is %s %s, the net expects %s %s, so it belongs to another net or "
          "precision",
          name, std::string(DTypeName(tensor->dtype)), tensor->shape.ToString(),
          DTypeName(parameter.spec.dtype), part.shape.ToString()));
    }
    parts.push_back(*tensor);
  }
  std::vector<std::byte> storage(parameter.spec.size_bytes());
  RETURN_IF_ERROR(parameter.owner->Pack(parameter.state, parts, StorageTensor(parameter, storage)));
  return storage;
}

std::string WeightsSha256(std::span<const NamedTensor> canonical) {
  std::vector<NamedTensor> sorted(canonical.begin(), canonical.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  Sha256Digest digest;
  for (const NamedTensor& named : sorted) {
    digest.Add({static_cast<const char*>(named.tensor.data), named.tensor.bytes()});
  }
  return digest.Hex();
}

}  // namespace gyre
