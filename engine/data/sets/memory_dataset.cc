#include "engine/data/sets/memory_dataset.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gyre {

absl::Status MemoryDataset::Add(const std::string& input, const std::string& name, HostArray array,
                                bool reset) {
  const auto invalid = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(name, what));
  };
  const int64_t samples = array.dims[0];
  if (samples == 0) return invalid(": no samples");
  if (array.bytes.empty()) {
    return invalid(absl::StrCat(": samples without elements: extents [",
                                absl::StrJoin(array.dims, ", "), "]"));
  }
  if (!arrays_.empty() && samples != stored_) {
    return absl::InvalidArgumentError(absl::StrCat(arrays_[0].file, " holds ", stored_,
                                                   " samples, but ", name, " holds ", samples));
  }
  stored_ = samples;
  const auto sample = std::span<const int64_t>(array.dims).subspan(1);
  arrays_.push_back(
      {.input = input, .file = name, .shape = Shape(sample), .dtype = array.dtype, .reset = reset});
  contents_.push_back(std::move(array));
  return absl::OkStatus();
}

void MemoryDataset::SetFiles(std::vector<std::string> files, std::vector<int64_t> samples) {
  files_ = std::move(files);
  ends_ = std::move(samples);
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

std::string MemoryDataset::Describe(int64_t index) const {
  const auto end = std::ranges::upper_bound(ends_, index);
  if (end == ends_.end()) return Dataset::Describe(index);
  return absl::StrCat(files_[static_cast<size_t>(end - ends_.begin())], ": sample ",
                      index - (end == ends_.begin() ? 0 : end[-1]));
}

absl::StatusOr<Tensor> MemoryDataset::Read(int64_t index, size_t array, SampleMemory&,
                                           const std::optional<SampleDraw>&) const {
  if (index < 0 || index >= stored_) {
    return absl::OutOfRangeError(
        absl::StrCat(arrays_[array].file, ": sample ", index, " of ", size(), " does not exist"));
  }
  Tensor sample{nullptr, arrays_[array].shape, arrays_[array].dtype};
  const std::byte* first = contents_[array].data();
  sample.data = const_cast<std::byte*>(first) + static_cast<size_t>(index) * sample.bytes();
  return sample;
}

}  // namespace gyre
