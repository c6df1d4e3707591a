#include "engine/api/given_dataset.h"

#include "engine/api/fed_batch.h"
#include "engine/runtime/check.h"

namespace gyre {

GivenDataset::GivenDataset(std::span<const gyre_array* const> given,
                           std::span<const gyre_array_info> infos, int64_t samples, int64_t global,
                           int64_t first, int64_t own)
    : given_(given.begin(), given.end()),
      size_(samples / own * global),
      global_(global),
      first_(first),
      own_(own) {
  for (size_t i = 0; i < given.size(); ++i) {
    arrays_.push_back(
        {.input = infos[i].name,
         .file = "the program's memory",
         .shape = Shape(std::vector<int64_t>(infos[i].dims, infos[i].dims + infos[i].rank)),
         .dtype = TypeOf(given[i]->type)});
  }
}

absl::StatusOr<Tensor> GivenDataset::Read(int64_t index, size_t array, SampleMemory&,
                                          const std::optional<SampleDraw>&) const {
  const int64_t batch = index / global_, in_batch = index % global_ - first_;
  GYRE_CHECK(index >= 0 && index < size_ && in_batch >= 0 && in_batch < own_);
  const DataArray& of = arrays_[array];
  const size_t bytes = static_cast<size_t>(of.shape.elements()) * SizeOf(of.dtype);
  auto* const data = static_cast<std::byte*>(given_[array]->data);
  return Tensor{data + static_cast<size_t>(batch * own_ + in_batch) * bytes, of.shape, of.dtype};
}

}  // namespace gyre
