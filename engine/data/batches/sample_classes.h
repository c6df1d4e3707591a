// sample_classes.h: the class of each sample of a data set, for orders and weights that depend on
// how many samples a class has.  Immutable.  Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sets/dataset.h"

namespace gyre {

struct SampleClasses {
  std::vector<int32_t> of_sample;  // from 0, in the order of the data's numbers
  std::vector<int64_t> counts;     // samples of each, >= 1

  // samples / (classes * samples of its class).
  double Weight(int64_t sample) const;
};

// Whether an array's samples are classes, each an integer.
bool HasClasses(const DataArray& array);

// Reads the array of all samples.  Precondition: HasClasses.
// Errors: those of Dataset::Read, and InvalidArgument for a class below 0.
absl::StatusOr<SampleClasses> ClassesOf(const Dataset& dataset, size_t array);

// The number that a sample of an array of classes is.
int32_t ClassIn(const Tensor& sample);

}  // namespace gyre
