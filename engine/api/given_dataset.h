// given_dataset.h: a program's arrays as a data set.  Each rank has the samples that it tests
// alone. Immutable.  Any thread.
#pragma once

#include <span>
#include <vector>

#include "engine/data/sets/dataset.h"
#include "engine/runtime/dtype.h"
#include "gyre/gyre_c.h"

namespace gyre {

class GivenDataset : public Dataset {
 public:
  // Of a batch of `global` samples this rank has `own`, from `first` on, and of its own samples
  // `samples`.  The arrays outlive it, and have passed ArrayList::Match.
  GivenDataset(std::span<const gyre_array* const> given, std::span<const gyre_array_info> infos,
               int64_t samples, int64_t global, int64_t first, int64_t own);

  int64_t size() const override { return size_; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory& memory,
                              const std::optional<SampleDraw>& draw) const override;

 private:
  const std::vector<const gyre_array*> given_;
  const int64_t size_, global_, first_, own_;
  std::vector<DataArray> arrays_;
};

}  // namespace gyre
