#include "engine/data/sets/side_by_side.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

const std::string& FileOf(const Dataset& source) { return source.arrays()[0].file; }

class SideBySideDataset : public Dataset {
 public:
  static absl::StatusOr<std::unique_ptr<Dataset>> Of(
      std::vector<std::unique_ptr<Dataset>> sources) {
    auto all = std::make_unique<SideBySideDataset>();
    for (std::unique_ptr<Dataset>& source : sources) {
      RETURN_IF_ERROR(all->Add(std::move(source)));
    }
    return all;
  }

  int64_t size() const override { return sources_[0]->size(); }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory& memory,
                              const std::optional<SampleDraw>& draw) const override {
    const auto& [source, first] = places_[array];
    const size_t before = std::exchange(memory.first, memory.first + first);
    auto sample = source->Read(index, array - first, memory, draw);
    memory.first = before;
    return sample;
  }
  std::span<const int64_t> sequences() const override { return sequences_.of; }
  std::span<const int32_t> lengths() const override { return lengths_.of; }
  std::span<const int64_t> groups() const override { return groups_.of; }
  Fit fit() const override { return fit_; }
  std::string Describe(int64_t index) const override { return sources_[0]->Describe(index); }
  absl::StatusOr<std::string_view> ReadStored(int64_t index, size_t array,
                                              SampleMemory& memory) const override {
    const auto& [source, first] = places_[array];
    return source->ReadStored(index, array - first, memory);
  }
  // The first one's that there is: all are read at the same positions.
  ReadWindow window() const override {
    const auto has = std::ranges::find_if(
        sources_, [](const auto& source) { return source->window().samples > 0; });
    return has == sources_.end() ? ReadWindow{} : (*has)->window();
  }
  void ReadSoon(std::span<const int64_t> samples) const override {
    for (const auto& source : sources_) source->ReadSoon(samples);
  }
  const std::vector<std::string>& notes() const override { return notes_; }

 private:
  // What at most one source has.
  template <typename T>
  struct OfOne {
    std::span<const T> of = {};
    const Dataset* source = nullptr;

    absl::Status Take(std::span<const T> more, const Dataset& from, const char* what) {
      if (more.empty()) return absl::OkStatus();
      if (source != nullptr) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s and %s both have %s; only one source side by side may",
                            FileOf(*source), FileOf(from), what));
      }
      of = more;
      source = &from;
      return absl::OkStatus();
    }
  };

  absl::Status Add(std::unique_ptr<Dataset> added) {
    const Dataset& source = *sources_.emplace_back(std::move(added));
    if (source.size() != size()) {
      return absl::InvalidArgumentError(absl::StrFormat("%s holds %d samples, but %s holds %d",
                                                        FileOf(*sources_[0]), size(),
                                                        FileOf(source), source.size()));
    }
    const size_t first = arrays_.size();
    for (const DataArray& array : source.arrays()) {
      const auto same = std::ranges::find(arrays_, array.input, &DataArray::input);
      if (same != arrays_.end()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s and %s both feed the net's input \"%s\"", same->file, array.file, array.input));
      }
      arrays_.push_back(array);
      places_.push_back({&source, first});
    }
    RETURN_IF_ERROR(sequences_.Take(source.sequences(), source, "sequences"));
    RETURN_IF_ERROR(lengths_.Take(source.lengths(), source, "lengths"));
    RETURN_IF_ERROR(groups_.Take(source.groups(), source, "groups"));
    for (const auto& [name, text] : source.fit()) {
      if (fit_.emplace(name, text).second) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("%s and a source before it both make %s of their samples; only one may",
                          FileOf(source), name));
    }
    notes_.insert(notes_.end(), source.notes().begin(), source.notes().end());
    return absl::OkStatus();
  }

  struct Place {
    const Dataset* source;
    size_t first;  // of arrays_, that is the source's
  };
  std::vector<std::unique_ptr<Dataset>> sources_;
  std::vector<DataArray> arrays_;
  std::vector<Place> places_;  // of arrays_
  OfOne<int64_t> sequences_, groups_;
  OfOne<int32_t> lengths_;
  Fit fit_;
  std::vector<std::string> notes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> SideBySide(std::vector<std::unique_ptr<Dataset>> sources) {
  return SideBySideDataset::Of(std::move(sources));
}

}  // namespace gyre
