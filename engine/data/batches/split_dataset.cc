#include "engine/data/batches/split_dataset.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/batches/sample_classes.h"
#include "engine/data/sets/hold_out.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// The samples of another data set at `indices`, which ascend.  Of a sequence all or none.
class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> all, std::vector<int64_t> indices,
         std::vector<std::string> notes)
      : all_(std::move(all)),
        indices_(std::move(indices)),
        arrays_(all_->arrays()),
        notes_(std::move(notes)) {
    for (DataArray& array : arrays_) {
      if (array.digest.empty()) continue;
      uint64_t chosen = 0;
      for (const int64_t index : indices_) {
        chosen = chosen * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(index) + 1;
      }
      absl::StrAppend(&array.digest, absl::StrFormat("/%016x", chosen));
    }
    int64_t end = 0;
    for (auto first = indices_.begin(); const int64_t samples : all_->window().files) {
      end += samples;
      const auto last = std::lower_bound(first, indices_.end(), end);
      files_.push_back(last - first);
      first = last;
    }
    auto chosen = indices_.begin();
    for (int64_t first = 0; const int64_t samples : all_->sequences()) {
      chosen = std::lower_bound(chosen, indices_.end(), first);
      if (chosen != indices_.end() && *chosen == first) sequences_.push_back(samples);
      first += samples;
    }
    if (!all_->lengths().empty()) {
      for (const int64_t index : indices_) {
        lengths_.push_back(all_->lengths()[static_cast<size_t>(index)]);
      }
    }
  }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory& memory,
                              const std::optional<SampleDraw>& draw) const override {
    const bool blank = index == size() && !sequences_.empty();
    GYRE_CHECK(blank || (index >= 0 && index < size()));
    return all_->Read(blank ? all_->size() : indices_[static_cast<size_t>(index)], array, memory,
                      draw);
  }
  absl::StatusOr<std::string_view> ReadStored(int64_t index, size_t array,
                                              SampleMemory& memory) const override {
    GYRE_CHECK(index >= 0 && index < size());
    return all_->ReadStored(indices_[static_cast<size_t>(index)], array, memory);
  }
  ReadWindow window() const override {
    return {.samples = all_->window().samples, .files = files_};
  }
  void ReadSoon(std::span<const int64_t> samples) const override {
    std::vector<int64_t> of_all;
    for (const int64_t sample : samples) of_all.push_back(indices_[static_cast<size_t>(sample)]);
    all_->ReadSoon(of_all);
  }
  std::span<const int64_t> sequences() const override { return sequences_; }
  std::span<const int32_t> lengths() const override { return lengths_; }
  Fit fit() const override { return all_->fit(); }
  int64_t NumberInFile(int64_t index) const override {
    return all_->NumberInFile(indices_[static_cast<size_t>(index)]);
  }
  std::string Describe(int64_t index) const override {
    return all_->Describe(indices_[static_cast<size_t>(index)]);
  }
  const std::vector<std::string>& notes() const override { return notes_; }

 private:
  const std::shared_ptr<const Dataset> all_;
  const std::vector<int64_t> indices_;
  std::vector<DataArray> arrays_;
  std::vector<int64_t> sequences_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> files_;  // of window()
  const std::vector<std::string> notes_;
};

// The class of each sample.
absl::StatusOr<std::vector<int64_t>> ClassesOf(const Dataset& dataset, const std::string& input) {
  const std::vector<DataArray>& arrays = dataset.arrays();
  const auto labels = std::ranges::find(arrays, input, &DataArray::input);
  const bool classes = labels != arrays.end() && labels->shape.elements() == 1 &&
                       (labels->dtype == DType::kI32 || labels->dtype == DType::kU8);
  if (!classes) {
    return absl::InvalidArgumentError(absl::StrCat("by: CLASS needs one integer a sample for \"",
                                                   input, "\"; leave it out, or use SAMPLE"));
  }
  std::vector<int64_t> numbers;
  SampleMemory memory;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    ASSIGN_OR_RETURN(
        const Tensor label,
        dataset.Read(i, static_cast<size_t>(labels - arrays.begin()), memory, std::nullopt));
    numbers.push_back(ClassIn(label));
  }
  return numbers;
}

}  // namespace

absl::StatusOr<SplitDatasets> Split(std::shared_ptr<const Dataset> dataset,
                                    const HoldOutConfig& config, const std::string& label_input) {
  const int64_t size = dataset->size();
  if (size < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected at least 2 samples to split, got ", size));
  }
  if (!dataset->sequences().empty() && config.by() != HoldOutConfig::GROUP) {
    return absl::InvalidArgumentError(
        "windows of a series continue one another; write by: GROUP, which holds back whole series");
  }
  std::vector<int64_t> kinds;
  if (config.by() == HoldOutConfig::CLASS) {
    ASSIGN_OR_RETURN(kinds, ClassesOf(*dataset, label_input));
  } else if (config.by() == HoldOutConfig::GROUP) {
    kinds.assign(dataset->groups().begin(), dataset->groups().end());
    if (kinds.empty() || std::ranges::adjacent_find(kinds, std::not_equal_to()) == kinds.end()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "by: GROUP needs a table's `group`, a column of two words or more, got %s",
          kinds.empty() ? "none" : "one group; write data.test"));
    }
  }
  const std::vector<bool> held = HeldOut(size, config, kinds);
  std::vector<int64_t> train, test;
  for (int64_t i = 0; i < size; ++i) (held[static_cast<size_t>(i)] ? test : train).push_back(i);
  if (test.empty() || train.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a share of %g leaves %d samples to train on and %d to test with; change split.test",
        config.test(), train.size(), test.size()));
  }
  const std::string by = absl::AsciiStrToLower(HoldOutConfig::By_Name(config.by()));
  const auto note = [&](const std::vector<int64_t>& part) {
    return absl::StrFormat("%d of %d samples, split by %s", part.size(), size, by);
  };
  std::vector<std::string> of_train = dataset->notes();  // of the whole, said once
  of_train.push_back(note(train));
  const std::vector<std::string> of_test = {note(test)};
  SplitDatasets split;
  split.train = std::make_unique<Subset>(dataset, std::move(train), std::move(of_train));
  split.test = std::make_unique<Subset>(dataset, std::move(test), of_test);
  return split;
}

}  // namespace gyre
