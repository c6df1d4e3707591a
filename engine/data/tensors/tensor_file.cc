#include "engine/data/tensors/tensor_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {

absl::StatusOr<std::vector<const NamedTensor*>> SortByName(const std::string& path,
                                                           std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& tensor : tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, &NamedTensor::name);
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->name == sorted[i - 1]->name) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": two tensors are named \"", sorted[i]->name, "\""));
    }
  }
  return sorted;
}

std::string_view BytesOf(const Tensor& tensor) {
  if (tensor.bytes() == 0) return {};
  GYRE_CHECK(tensor.data != nullptr);
  return {static_cast<const char*>(tensor.data), tensor.bytes()};
}

const Tensor* TensorFile::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &NamedTensor::name);
  return found != tensors_.end() && found->name == name ? &found->tensor : nullptr;
}

absl::Status TensorFile::CheckReadable(std::string_view name) const {
  const auto found = unreadable_.find(name);
  if (found == unreadable_.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its tensor \"", found->first, "\" ", found->second));
}

TensorFile TensorFile::With(std::vector<NamedTensor> tensors) const {
  TensorFile file = *this;
  file.tensors_ = std::move(tensors);
  std::ranges::sort(file.tensors_, {}, &NamedTensor::name);
  return file;
}

}  // namespace gyre
