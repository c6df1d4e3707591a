// memory_dataset.h: a data set in memory, built by adding one array after another.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/data/sets/dataset.h"
#include "engine/data/tensors/array_file.h"

namespace gyre {

class MemoryDataset : public Dataset {
 public:
  // Adds an array that feeds the net input `input`.  Its first axis counts samples, as many as in
  // the other arrays.  `name` is for messages.
  absl::Status Add(const std::string& input, const std::string& name, HostArray array,
                   bool reset = false);
  // The last sample of each array is the blank one.  These sequences are the others.
  void SetSequences(std::vector<int64_t> samples) { sequences_ = std::move(samples); }
  void SetLengths(std::vector<int32_t> lengths) { lengths_ = std::move(lengths); }
  // The samples are those of these files, one after another.
  void SetFiles(std::vector<std::string> files, std::vector<int64_t> samples);
  void SetGroups(std::vector<int64_t> groups) { groups_ = std::move(groups); }
  void SetFit(Fit fit) { fit_ = std::move(fit); }
  // Sets the text about content that is left out, or "".
  void AddNote(std::string note) {
    if (!note.empty()) notes_.push_back(std::move(note));
  }

  int64_t size() const override { return stored_ - (sequences_.empty() ? 0 : 1); }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory& memory,
                              const std::optional<SampleDraw>& draw) const override;
  std::span<const int64_t> sequences() const override { return sequences_; }
  std::span<const int32_t> lengths() const override { return lengths_; }
  std::span<const int64_t> groups() const override { return groups_; }
  Fit fit() const override { return fit_; }
  std::string Describe(int64_t index) const override;
  const std::vector<std::string>& notes() const override { return notes_; }

 private:
  int64_t stored_ = 0;  // samples of each array
  std::vector<DataArray> arrays_;
  std::vector<HostArray> contents_;
  std::vector<int64_t> sequences_;
  std::vector<int32_t> lengths_;
  std::vector<std::string> files_;  // empty: that of the first array
  std::vector<int64_t> ends_;       // of the files' samples
  std::vector<int64_t> groups_;
  Fit fit_;
  std::vector<std::string> notes_;
};

// An array being filled, of `samples` samples of `sample` values each, 0 at first.
template <typename T>
HostArray NewArray(int64_t samples, const std::vector<int64_t>& sample) {
  HostArray array{.dtype = kDTypeOf<T>, .dims = {samples}, .bytes = {}};
  int64_t elements = samples;
  for (const int64_t extent : sample) elements *= extent;
  array.dims.insert(array.dims.end(), sample.begin(), sample.end());
  array.bytes.resize(static_cast<size_t>(elements) * sizeof(T));
  return array;
}
template <typename T>
T* ElementsOf(HostArray& array) {
  return reinterpret_cast<T*>(array.bytes.data());
}

}  // namespace gyre
