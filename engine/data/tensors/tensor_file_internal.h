// tensor_file_internal.h: helpers of the writers of tensor files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/tensors/tensor_file.h"

namespace gyre {

// The tensors in name order.  Pointers are into `tensors`.
// Errors: InvalidArgument, beginning with path, for a repeated name.
absl::StatusOr<std::vector<const NamedTensor*>> SortByName(const std::string& path,
                                                           std::span<const NamedTensor> tensors);

// The elements as bytes.  Empty for a tensor without elements.
std::string_view BytesOf(const Tensor& tensor);

}  // namespace gyre
