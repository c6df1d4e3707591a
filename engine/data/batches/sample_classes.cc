#include "engine/data/batches/sample_classes.h"

#include <map>

#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"

namespace gyre {

double SampleClasses::Weight(int64_t sample) const {
  const int64_t own = counts[static_cast<size_t>(of_sample[static_cast<size_t>(sample)])];
  return static_cast<double>(of_sample.size()) /
         (static_cast<double>(counts.size()) * static_cast<double>(own));
}

bool HasClasses(const DataArray& array) {
  return array.shape.rank() == 0 && (array.dtype == DType::kI32 || array.dtype == DType::kU8);
}

int32_t ClassIn(const Tensor& sample) {
  return sample.dtype == DType::kU8 ? *sample.as<uint8_t>() : *sample.as<int32_t>();
}

absl::StatusOr<SampleClasses> ClassesOf(const Dataset& dataset, size_t array) {
  const DataArray& read = dataset.arrays()[array];
  GYRE_CHECK(HasClasses(read));
  SampleClasses classes;
  classes.of_sample.reserve(static_cast<size_t>(dataset.size()));
  SampleMemory memory;
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    ASSIGN_OR_RETURN(const Tensor stored, dataset.Read(sample, array, memory, {}));
    const int32_t number = ClassIn(stored);
    if (number < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: sample %d (the first is 0): expected a class, got %d", read.file,
                          dataset.NumberInFile(sample), number));
    }
    classes.of_sample.push_back(number);
  }
  std::map<int32_t, int32_t> index_of;  // by the data's number, which may be large
  for (const int32_t number : classes.of_sample) index_of.emplace(number, 0);
  int32_t classes_so_far = 0;
  for (auto& [number, index] : index_of) index = classes_so_far++;
  classes.counts.resize(index_of.size());
  for (int32_t& of_sample : classes.of_sample) {
    of_sample = index_of[of_sample];
    ++classes.counts[static_cast<size_t>(of_sample)];
  }
  return classes;
}

}  // namespace gyre
